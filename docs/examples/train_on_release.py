"""Trains a Keras model on released labels: `unbiased` against `rr_on_bins`, at one epsilon.

    python docs/examples/train_on_release.py census_weeks.csv work_folder

The labels party keeps a fifth of the census for testing, and runs `labeldp privatize` on the rest, once per mechanism.
The features party sees the two releases alone: tf.data reads their TFRecord shards, and a network of three layers
learns how many weeks somebody worked. Only at the end does the labels party say how far off its predictions are.
The same census is released twice here, for comparison; who does that in earnest spends epsilon twice.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import secrets
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import tensorflow as tf

LABEL, LARGEST = "work", 52
FLAGS = ("morekids", "gender1", "gender2", "afam", "hispanic", "other")
TRUE = {"yes", "male"}
MECHANISMS = ("unbiased", "rr_on_bins")


def split(census: Path, folder: Path, records: int | None) -> tuple[Path, Path]:
    """Writes the training and the test records, of all or of the first so many. Returns the two files."""
    with census.open(newline="") as file:
        header, *rows = csv.reader(file)
    rows = rows[:records]
    random.Random(1).shuffle(rows)
    test = len(rows) // 5
    paths = folder / "train.csv", folder / "test.csv"
    for path, part in zip(paths, (rows[test:], rows[:test]), strict=True):
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([header, *part])
    return paths


def make_key(path: Path) -> None:
    """The secret of the labels party, which nobody else can read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(secrets.token_bytes(32))


def privatize(train: Path, mechanism: str, epsilon: float, folder: Path) -> Path:
    """The labels party's job. Returns the released folder."""
    released = folder / mechanism
    flags = {
        "input": train, "input_format": "csv", "label": LABEL, "label_min": 0, "label_max": LARGEST, "label_step": 1,
        "epsilon": epsilon, "mechanism": mechanism, "num_shards": 4, "noise_key_file": folder / "noise.key",
        "output": released,
    }  # fmt: skip
    labeldp = Path(sys.executable).with_name("labeldp")
    subprocess.run([labeldp, "privatize", *(f"--{name}={value}" for name, value in flags.items())], check=True)
    return released


def released_examples(folder: Path, batch: int) -> tf.data.Dataset:
    """Batches of (features, label) from the shards of a release."""
    types = {"age": tf.int64, LABEL: tf.float32, **dict.fromkeys(FLAGS, tf.string)}
    layout = {name: tf.io.FixedLenFeature([], kind) for name, kind in types.items()}

    def parse(records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        columns = tf.io.parse_example(records, layout)
        flags = [tf.reduce_any([columns[name] == text for text in TRUE], axis=0) for name in FLAGS]
        numbers = [(tf.cast(columns["age"], tf.float32) - 30) / 5, *(tf.cast(flag, tf.float32) for flag in flags)]
        return tf.stack(numbers, axis=1), columns[LABEL] / LARGEST

    shards = tf.data.Dataset.list_files(str(folder / "data" / "part-*"), shuffle=False)
    records = tf.data.TFRecordDataset(shards).shuffle(1 << 18, seed=2)
    return records.batch(batch).map(parse, num_parallel_calls=2).cache().prefetch(2)


def read_test(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Features (n, 7) and true labels (n,) of the test records."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    features = [[(int(row["age"]) - 30) / 5, *(float(row[name] in TRUE) for name in FLAGS)] for row in rows]
    return np.array(features, np.float32), np.array([float(row[LABEL]) for row in rows])


def train(examples: tf.data.Dataset, epochs: int) -> tf.keras.Model:
    """The papers' network. Squared loss: it is what lets the noise of unbiased labels average out."""
    tf.keras.utils.set_random_seed(3)
    half = tf.keras.initializers.Constant(0.5)
    model = tf.keras.Sequential(
        [
            tf.keras.Input((1 + len(FLAGS),)),
            tf.keras.layers.Dense(128, activation="relu"),
            tf.keras.layers.Dense(64, activation="relu"),
            # Labels are noisy: training starts from half of all weeks, not from random predictions.
            tf.keras.layers.Dense(1, kernel_initializer="zeros", bias_initializer=half),
        ]
    )
    batches = sum(1 for _ in examples)
    rate = tf.keras.optimizers.schedules.CosineDecay(1e-3, epochs * batches)
    model.compile(optimizer=tf.keras.optimizers.Adam(rate), loss="mse")
    model.fit(examples.repeat(), epochs=epochs, steps_per_epoch=batches, shuffle=False, verbose=0)
    return model


def main() -> None:
    """Prints a line per mechanism."""
    parser = argparse.ArgumentParser(description="Train on labels of two mechanisms, and compare.")
    parser.add_argument("census", type=Path, help="census_weeks.csv")
    parser.add_argument("folder", type=Path, help="a new folder for the split and the releases")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--records", type=int, help="only the first so many")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=2048)
    args = parser.parse_args()
    args.folder.mkdir(parents=True)
    make_key(args.folder / "noise.key")
    training, testing = split(args.census, args.folder, args.records)
    features, labels = read_test(testing)
    for mechanism in MECHANISMS:
        released = privatize(training, mechanism, args.epsilon, args.folder)
        model = train(released_examples(released, args.batch), args.epochs)
        predictions = LARGEST * model.predict(features, batch_size=1 << 14, verbose=0)[:, 0]
        print(f"{mechanism:<16}test mean squared error {np.mean((predictions - labels) ** 2):.2f}", flush=True)
    print(f"{'one prediction':<16}test mean squared error {np.var(labels):.2f}")


if __name__ == "__main__":
    main()
