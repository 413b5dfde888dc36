"""`labeldp demo`: runs the main job on a generated conversion log."""

from __future__ import annotations

import argparse
import os
import time

from ...mechanisms.core.budget import check_epsilon
from ...transforms.noise_key_file import NoiseKeyFile
from ...transforms.progress_log import Progress
from ...transforms.tfrecord.example_encoder import encode_examples
from ...transforms.tfrecord.framing import frame
from ..cli.arguments import UsageError, log_to_stderr
from ..cli.commands import parse
from ..cli.exit_codes import SUCCESS, run_command
from ..cli.local_files import check_can_create
from ..cli.optional_extras import check_tfrecord
from ..job.privatize_command import run_privatize
from .conversion_log import CONVERTED, LABEL, LABEL_MAX, click_batches

_FILES = 8
"""Number of files of the generated log."""


def run(args: argparse.Namespace) -> int:
    """Generates the log, privatizes its conversion values and prints what was released.

    Args:
      args: Parsed flags.

    Returns:
      The exit code.
    """
    log_to_stderr()
    code = run_command("labeldp demo", lambda: _check_flags(args))
    return code if code != SUCCESS else _demo(args)


def _check_flags(args: argparse.Namespace) -> None:
    if args.clicks < 1:
        raise UsageError(f"--clicks must be at least 1, not {args.clicks}")
    if os.path.exists(args.output):
        raise UsageError(f"--output {args.output} exists: name another folder, or delete it")
    try:
        check_epsilon(args.epsilon)
    except ValueError as error:
        raise UsageError(f"--{error}") from None
    check_tfrecord("demo, which writes tfrecord files,")
    check_can_create("--output", args.output)


def _demo(args: argparse.Namespace) -> int:
    """Makes the log and runs the job; returns its exit code."""
    started = time.perf_counter()
    _write_log(os.path.join(args.output, "clicks"), args.clicks, args.seed)
    generated = time.perf_counter()
    key = NoiseKeyFile(os.path.join(args.output, "noise.key"))
    key.create()
    job, _ = parse(
        [
            "privatize",
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
    code = run_privatize(job, [])
    if code == SUCCESS:
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
