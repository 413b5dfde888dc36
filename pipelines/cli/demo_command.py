"""`labeldp demo`: runs the main job on a generated conversion log."""

from __future__ import annotations

import argparse
import os
import time

import pyarrow as pa
import pyarrow.compute as pc

from ...mechanisms.core.budget import check_epsilon
from ...transforms.noise_key_file import NoiseKeyFile
from ...transforms.progress_log import Progress
from ...transforms.tfrecord.example_encoder import encode_examples
from ...transforms.tfrecord.framing import frame
from ..errors import UsageError
from ..flags.arguments import log_to_stderr
from ..flags.local_files import check_can_create
from ..flags.optional_extras import check_extra, check_tfrecord
from .commands import parse
from .conversion_log import CONVERTED, LABEL, LABEL_MAX, click_batches, new_clicks
from .exit_codes import SUCCESS, run_command
from .privatize_command import run_privatize

_FILES = 8
"""Number of files of the generated log."""
_MOST_TO_TRAIN_ON = 10_000_000
"""Largest number of clicks whose conversions are kept in memory, to train a model on."""


def run(args: argparse.Namespace) -> int:
    """Generates the log, privatizes its conversion values and prints what was released; returns the exit code."""
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
    conversions = _write_log(os.path.join(args.output, "clicks"), args.clicks, args.seed)
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
        _train(conversions, os.path.join(args.output, "released"), args.clicks, args.seed)
        print(f"seconds    {privatized:.1f} to privatize, after {generated - started:.1f} to generate the log")
    return code


def _train(conversions: pa.Table, release: str, clicks: int, seed: int) -> None:
    """Prints the test errors of a model trained on the released labels and of one trained on the true labels."""
    if clicks > _MOST_TO_TRAIN_ON:
        print(f"trained    no model: that is done for at most {_MOST_TO_TRAIN_ON:,} clicks")
        return
    try:
        check_extra("demo, to train a model,", "evaluation", "sklearn")
    except UsageError as error:
        print(f"trained    no model: {error}")
        return
    # Imported late: scikit-learn takes a second, which bad usage should not wait for.
    from .trained_models import compare_models

    errors = compare_models(conversions, release, new_clicks(-(-clicks // _FILES), seed))
    if errors is None:
        print("trained    no model: there are too few conversions")
        return
    print(
        f"trained    ridge regression; mean squared error on {errors.records:,} new conversions: "
        f"{errors.released:,.0f} if trained on the released labels, {errors.true:,.0f} on the true labels, "
        f"{errors.mean:,.0f} if the mean is predicted"
    )


def _write_log(folder: str, clicks: int, seed: int) -> pa.Table:
    """Writes the log, and returns the conversions; none of a log that is too large to train on."""
    os.makedirs(folder)
    progress = Progress("generated")
    rows = -(-clicks // _FILES)
    conversions: list[pa.Table] = []
    for number, batch in enumerate(click_batches(clicks, seed, rows)):
        with open(os.path.join(folder, f"part-{number:05d}-of-{_FILES:05d}.tfrecord"), "wb") as file:
            file.write(frame(encode_examples(batch)))
        if clicks <= _MOST_TO_TRAIN_ON:
            conversions.append(pa.Table.from_batches([batch]).filter(pc.field(CONVERTED) == 1))
        progress.add(batch.num_rows)
    return pa.concat_tables(conversions) if conversions else pa.table({})
