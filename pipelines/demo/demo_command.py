"""`labeldp demo`: runs the main job on a generated conversion log."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from ...mechanisms.core.budget import check_epsilon
from ...transforms.noise_key_file import NoiseKeyFile
from ...transforms.progress_log import Progress
from ...transforms.tfrecord.example_encoder import encode_examples
from ...transforms.tfrecord.framing import frame
from ..cli.arguments import ArgumentParser, UsageError, log_to_stderr
from ..cli.local_files import check_can_create
from ..cli.optional_extras import check_tfrecord
from ..job.privatize_command import run_privatize
from .conversion_log import CONVERTED, LABEL, LABEL_MAX, click_batches

_FILES = 8
"""Number of files of the generated log."""


def run(argv: Sequence[str] | None = None) -> int:
    """Generates the log, privatizes its conversion values and prints what was released.

    Args:
      argv: Arguments after the command's name; None for those of the process.

    Returns:
      The exit code.
    """
    parser = ArgumentParser("labeldp demo", "Privatize the conversion values of a generated log of clicks.")
    parser.add_argument("--output", required=True, metavar="DIR", help="new folder for the log and the release")
    parser.add_argument("--clicks", type=int, default=1_000_000, metavar="N", help="number of clicks; default 1000000")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="seed of the generated log; default 1")
    parser.add_argument("--epsilon", type=float, default=1.0, metavar="E", help="privacy budget; default 1")
    args = parser.parse_args(argv)
    log_to_stderr()
    if args.clicks < 1:
        parser.error(f"--clicks must be at least 1, not {args.clicks}")
    if os.path.exists(args.output):
        parser.error(f"--output {args.output} exists: name another folder, or delete it")
    try:
        check_epsilon(args.epsilon)
        check_tfrecord("demo, which writes tfrecord files,")
        check_can_create("--output", args.output)
    except ValueError as error:
        parser.error(f"--{error}")
    except UsageError as error:
        parser.error(str(error))
    started = time.perf_counter()
    _write_log(os.path.join(args.output, "clicks"), args.clicks, args.seed)
    generated = time.perf_counter()
    key = NoiseKeyFile(os.path.join(args.output, "noise.key"))
    key.create()
    code = run_privatize(
        [
            f"--input={os.path.join(args.output, 'clicks', '*.tfrecord')}",
            "--input_format=tfrecord",
            f"--where={CONVERTED}=1",
            f"--label={LABEL}",
            "--label_min=0",
            f"--label_max={LABEL_MAX}",
            "--label_step=1",
            f"--epsilon={args.epsilon}",
            "--num_shards=4",
            f"--noise_key_file={key.path}",
            f"--output={os.path.join(args.output, 'released')}",
        ]
    )
    if code == 0:
        privatized = time.perf_counter() - generated
        print(f"seconds    {privatized:.1f} to privatize, after {generated - started:.1f} to generate the log")
    return code


def _write_log(folder: str, clicks: int, seed: int) -> None:
    os.makedirs(folder)
    progress = Progress("generated")
    rows = -(-clicks // _FILES)
    for number, batch in enumerate(click_batches(clicks, seed, rows)):
        with open(os.path.join(folder, f"part-{number:05d}-of-{_FILES:05d}.tfrecord"), "wb") as file:
            file.write(frame(encode_examples(batch)))
        progress.add(batch.num_rows)
