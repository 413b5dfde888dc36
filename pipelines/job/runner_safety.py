"""Refusal of runner settings that would show labels or the secret key, through open ports or through data sampling.

Refused options raise UsageError, which names the flag.
"""

from __future__ import annotations

from apache_beam.options.pipeline_options import (
    DebugOptions,
    DirectOptions,
    PipelineOptions,
    PortableOptions,
    StandardOptions,
)

from ...transforms.progress_log import LOGGER
from ..errors import UsageError
from .runner_options import runner_name


def forbid_ports(options: PipelineOptions) -> None:
    """Refuses local runners whose workers are reached through network ports.

    Beam's worker processes, and its worker threads of the mode `multi_threading`, listen on all network interfaces
    without authentication, and send any file that this user can read to anyone who connects. In-process workers need no
    port.
    """
    mode = options.view_as(DirectOptions).direct_running_mode
    if mode != "in_memory":
        raise UsageError(
            f"--direct_running_mode {mode} opens ports through which anyone on the network could read the input and "
            "the key: leave it out; --direct_num_workers N gives N threads without ports"
        )
    if runner_name(options) == "interactiverunner":
        raise UsageError("--runner: InteractiveRunner opens such ports and stores labels to display them: leave it out")


def forbid_sampling(options: PipelineOptions) -> None:
    """Refuses data sampling and turns exception sampling off: both send raw labels to the runner's user interface.

    The options are changed in place.
    """
    debug = options.view_as(DebugOptions)
    requested = [name for name in debug.experiments or [] if name.startswith("enable") and "sampling" in name]
    if requested:
        raise UsageError(f"--experiments {requested[0]} would show raw labels in the runner's interface: leave it out")
    debug.add_experiment("disable_always_on_exception_sampling")


def warn_of_ports(options: PipelineOptions) -> None:
    """Warns if the runner reaches workers in this process through a port, as Prism does.

    Such workers execute code that anyone who can connect sends to them.
    """
    kind = options.view_as(PortableOptions).environment_type
    if kind == "LOOPBACK" or (kind is None and runner_name(options) in ("prismrunner", "flinkrunner")):
        runner = options.view_as(StandardOptions).runner
        LOGGER.warning("workers of %s listen on all network interfaces; use it only on a trusted network", runner)
