"""`labeldp demo`: runs the main job on a generated conversion log."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ...mechanisms.core.budget import check_epsilon
from ...transforms.noise_key_file import NoiseKeyFile
from ...transforms.progress_log import Progress
from ...transforms.tfrecord.example_encoder import encode_examples
from ...transforms.tfrecord.framing import frame
from ..cli.arguments import ArgumentParser, UsageError, log_to_stderr
from ..cli.local_files import check_can_create
from ..cli.optional_extras import check_extra, check_tfrecord
from ..job.privatize_command import run_privatize
from .conversion_log import CONVERTED, LABEL, LABEL_MAX, click_batches, new_clicks

_FILES = 8
"""Number of files of the generated log."""
_MOST_TO_TRAIN_ON = 10_000_000
"""Largest number of clicks whose conversions are kept in memory, to train a model on."""


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
    conversions = _write_log(os.path.join(args.output, "clicks"), args.clicks, args.seed)
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
    conversions: list[pa.RecordBatch] = []
    for number, batch in enumerate(click_batches(clicks, seed, rows)):
        with open(os.path.join(folder, f"part-{number:05d}-of-{_FILES:05d}.tfrecord"), "wb") as file:
            file.write(frame(encode_examples(batch)))
        if clicks <= _MOST_TO_TRAIN_ON:
            conversions.append(batch.filter(pc.equal(batch.column(CONVERTED), 1)))
        progress.add(batch.num_rows)
    return pa.Table.from_batches(conversions, batch.schema)
