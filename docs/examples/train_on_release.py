"""Trains on released labels and compares, at one epsilon, the mechanisms `unbiased`, `rr_on_bins` and the default.

    python docs/examples/train_on_release.py census_weeks.csv work_folder

The labels party keeps a fifth of the census for testing and runs `labeldp privatize` on the rest, once for each
mechanism. The features party sees the releases only. From the first two, tf.data reads TFRecord shards, and a network
of three layers learns to predict the number of weeks worked. The third one has a center, a prediction of each label
that is released as a column: trees of scikit-learn learn what it misses, with the center as an offset. At the end the
labels party measures the test errors. The example releases the same census three times for the comparison; with private
data, that would spend epsilon three times.
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
os.environ.setdefault("OMP_NUM_THREADS", "1")  # OpenMP's threads wait for each other where processors are shared.
import numpy as np
import tensorflow as tf
from labeldp import CenterModel
from sklearn.ensemble import HistGradientBoostingRegressor

LABEL, CENTER, LARGEST = "work", "work_center", 52
FLAGS = ("morekids", "gender1", "gender2", "afam", "hispanic", "other")
TRUE = {"yes", "male"}
MECHANISMS = ("unbiased", "rr_on_bins")
AROUND = "auto"
"""The default of labeldp, which makes a linear center."""


def split(census: Path, folder: Path, records: int | None) -> tuple[Path, Path]:
    """Splits the census into training and test records, 80 to 20.

    Args:
      census: A CSV file with a header.
      folder: Folder to write to.
      records: Number of records to use, from the first; None for all.

    Returns:
      Files of the training records and of the test records.
    """
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
    """Creates the noise key of the labels party, readable by its owner only.

    Args:
      path: A file that does not exist.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(secrets.token_bytes(32))


def privatize(train: Path, mechanism: str, epsilon: float, folder: Path) -> Path:
    """Runs the job of the labels party.

    Args:
      train: Training records.
      mechanism: Name of the mechanism.
      epsilon: The whole budget.
      folder: Folder of the noise key and of the releases.

    Returns:
      Folder of the release.
    """
    released = folder / mechanism
    flags = {
        "input": train, "input_format": "csv", "label": LABEL, "label_min": 0, "label_max": LARGEST, "label_step": 1,
        "epsilon": epsilon, "mechanism": mechanism, "num_shards": 4, "noise_key_file": folder / "noise.key",
        "output": released, "output_format": "tfrecord",
    }  # fmt: skip
    labeldp = Path(sys.executable).with_name("labeldp")
    subprocess.run([labeldp, "privatize", *(f"--{name}={value}" for name, value in flags.items())], check=True)
    return released


def released_columns(folder: Path, batch: int, *more: str) -> tf.data.Dataset:
    """Reads the shards of a release.

    Args:
      folder: Folder of the release.
      batch: Number of records in a batch.
      *more: Names of float columns, besides the features and the label.

    Returns:
      Batches of features, shape (b, 7), float32, and of the columns by name: the label and `more`, shape (b,), float32.
    """
    floats = dict.fromkeys((LABEL, *more), tf.float32)
    types = {"age": tf.int64, **floats, **dict.fromkeys(FLAGS, tf.string)}
    layout = {name: tf.io.FixedLenFeature([], kind) for name, kind in types.items()}

    def parse(records: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        columns = tf.io.parse_example(records, layout)
        flags = [tf.reduce_any([columns[name] == text for text in TRUE], axis=0) for name in FLAGS]
        numbers = [(tf.cast(columns["age"], tf.float32) - 30) / 5, *(tf.cast(flag, tf.float32) for flag in flags)]
        return tf.stack(numbers, axis=1), {name: columns[name] for name in floats}

    shards = tf.data.Dataset.list_files(str(folder / "data" / "part-*"), shuffle=False)
    records = tf.data.TFRecordDataset(shards).shuffle(1 << 18, seed=2)
    return records.batch(batch).map(parse, num_parallel_calls=2)


def released_examples(folder: Path, batch: int) -> tf.data.Dataset:
    """Reads a release as examples for the network.

    Args:
      folder: Folder of the release.
      batch: Number of records in a batch.

    Returns:
      Batches of features, shape (b, 7), float32, and of labels divided by 52, shape (b,), float32.
    """
    columns = released_columns(folder, batch)
    return columns.map(lambda features, columns: (features, columns[LABEL] / LARGEST)).cache().prefetch(2)


def read_test(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Reads the test records.

    Args:
      path: A CSV file with a header.

    Returns:
      Features, shape (n, 7), float32, and true labels, shape (n,), float64.
    """
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    features = [[(int(row["age"]) - 30) / 5, *(float(row[name] in TRUE) for name in FLAGS)] for row in rows]
    return np.array(features, np.float32), np.array([float(row[LABEL]) for row in rows])


def train(examples: tf.data.Dataset, epochs: int) -> tf.keras.Model:
    """Trains the network of the papers with squared loss, for which the noise of unbiased labels averages out.

    Args:
      examples: Batches of features and labels.
      epochs: Number of passes over the examples.

    Returns:
      The trained model.
    """
    tf.keras.utils.set_random_seed(3)
    half = tf.keras.initializers.Constant(0.5)
    model = tf.keras.Sequential(
        [
            tf.keras.Input((1 + len(FLAGS),)),
            tf.keras.layers.Dense(128, activation="relu"),
            tf.keras.layers.Dense(64, activation="relu"),
            # With noisy labels, training should not start from random predictions: it starts from half the range.
            tf.keras.layers.Dense(1, kernel_initializer="zeros", bias_initializer=half),
        ]
    )
    batches = sum(1 for _ in examples)
    rate = tf.keras.optimizers.schedules.CosineDecay(1e-3, epochs * batches)
    model.compile(optimizer=tf.keras.optimizers.Adam(rate), loss="mse")
    model.fit(examples.repeat(), epochs=epochs, steps_per_epoch=batches, shuffle=False, verbose=0)
    return model


def train_around_center(folder: Path) -> HistGradientBoostingRegressor:
    """Trains trees on what the center misses: it is an offset, which is not learned.

    Args:
      folder: Folder of a release with a center.

    Returns:
      The model; its prediction is to be added to the center.
    """
    parts = list(released_columns(folder, 1 << 16, CENTER).as_numpy_iterator())
    features = np.concatenate([part for part, _ in parts])
    released, center = (np.concatenate([columns[name] for _, columns in parts]) for name in (LABEL, CENTER))
    # The noise of labels is large: small trees with many records in each leaf average it out.
    smallest = max(20, len(features) // 100)
    model = HistGradientBoostingRegressor(max_iter=50, max_leaf_nodes=8, min_samples_leaf=smallest, random_state=3)
    return model.fit(features, released - center)


def predict_center(folder: Path, path: Path) -> np.ndarray:
    """Predicts labels of new records with the center of a release.

    Args:
      folder: Folder of the release.
      path: CSV file of new records, with a header.

    Returns:
      Centers, shape (n,), float64.
    """
    center = CenterModel.from_json((folder / "center.json").read_text())
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    columns = {name: [row[name] for row in rows] for name in center.features}
    # A CSV file has text only; the release had numbers.
    columns["age"] = [float(row["age"]) for row in rows]
    return center.predict(columns)


def main() -> None:
    """Prints the test error of each release and of a constant prediction."""
    parser = argparse.ArgumentParser(description="Train on labels of several releases and compare test errors.")
    parser.add_argument("census", type=Path, help="census_weeks.csv")
    parser.add_argument("folder", type=Path, help="a new folder for the split and the releases")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--records", type=int, metavar="N", help="use the first N records only")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=2048)
    args = parser.parse_args()
    args.folder.mkdir(parents=True)
    make_key(args.folder / "noise.key")
    training, testing = split(args.census, args.folder, args.records)
    features, labels = read_test(testing)

    def report(name: str, predictions: np.ndarray | float) -> None:
        print(f"{name:<24}test mean squared error {np.mean((predictions - labels) ** 2):.2f}", flush=True)

    for mechanism in MECHANISMS:
        released = privatize(training, mechanism, args.epsilon, args.folder)
        model = train(released_examples(released, args.batch), args.epochs)
        report(mechanism, LARGEST * model.predict(features, batch_size=1 << 14, verbose=0)[:, 0])
    released = privatize(training, AROUND, args.epsilon, args.folder)
    center = predict_center(released, testing)
    report("center alone", center)
    report("trees around the center", center + train_around_center(released).predict(features))
    report("one prediction", labels.mean())


if __name__ == "__main__":
    main()
