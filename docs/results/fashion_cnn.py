"""Trains two small convolutional networks on Fashion-MNIST with released classes: the field's own comparison.

    python docs/results/fashion_cnn.py DATA_FOLDER WORK_FOLDER

All 60,000 training images with classes that `labeldp.privatize` releases, accuracy on the 10,000 test images with true
classes. Both networks have two convolutions: `pooling` is like those of papers, `strides` takes a third of its time.
DATA_FOLDER has the folder fashion-mnist (prepare.py says where it comes from); WORK_FOLDER keeps centers, and
predictions from which other networks are trained. Needs TensorFlow, whose Keras trains the networks. Rows of
fashion_cnn.csv are written as they are computed, and those that are there are kept: interrupt it when there are enough.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
import warnings
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import pandas as pd
import tensorflow as tf
from keras import layers, ops
from labeldp import privatize
from labeldp.training import Release
from prepare import fashion_images, principal_components
from summary import read_rows, write_rows

EPSILONS = (0.5, 1.0, 2.0)
SEEDS = 2
TRAINING, CLASSES = 60_000, 10
FILTERS = ((16, 5), (32, 3))
EPOCHS, BATCH, RATE = 6, 256, 2e-3
TRUE = "true"
NETWORKS = ("pooling", "strides")
TRAININGS = ("uncorrected", "debiased", "likelihood", "posterior", "agreed", "center")


class Score(NamedTuple):
    """Accuracy of a network.

    Attributes:
      network: One of `NETWORKS`.
      training: One of `TRAININGS`, or `TRUE`.
      epsilon: Budget; infinite for true classes.
      seed: Seed of noise and network.
      accuracy: Share of the test images whose likeliest class is the true one.
      records: Number of images that the network was trained on.
    """

    network: str
    training: str
    epsilon: float
    seed: int
    accuracy: float
    records: int


def made(network: str, seed: int) -> keras.Model:
    """Makes a network, whose outputs are logits of the classes."""
    keras.utils.set_random_seed(seed)
    if network == "strides":
        first = [layers.Conv2D(filters, size, 2, activation="relu") for filters, size in FILTERS]
    else:
        first = [[layers.Conv2D(*each), layers.MaxPool2D(), layers.ReLU()] for each in FILTERS]
        first = list(chain.from_iterable(first))
    last = [layers.Flatten(), layers.Dense(64, activation="relu"), layers.Dense(CLASSES)]
    return keras.Sequential([keras.Input((28, 28, 1)), *first, *last])


def cross_entropy(targets, logits):
    """Cross entropy, of targets outside of [0, 1] as well."""
    return -ops.sum(targets * ops.log_softmax(logits), axis=-1)


def forward_loss(likelihoods, logits):
    """Negative log likelihood of released classes."""
    return -ops.log(ops.sum(likelihoods * ops.softmax(logits), axis=-1))


def trained(model: keras.Model, images: np.ndarray, targets: np.ndarray, loss=cross_entropy):
    """Trains a network on targets, shape (n, K); returns what predicts probabilities, shape (n, K)."""
    batches = len(images) // BATCH
    optimizer = keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(RATE, EPOCHS * batches))
    optimizer.build(model.trainable_variables)
    pixels, wanted = tf.constant(images), tf.constant(targets, tf.float32)

    @tf.function
    def epoch(order):
        for batch in tf.range(batches):
            rows = order[batch * BATCH : (batch + 1) * BATCH]
            with tf.GradientTape() as tape:
                mean = tf.reduce_mean(loss(tf.gather(wanted, rows), model(tf.gather(pixels, rows), training=True)))
            gradients = tape.gradient(mean, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    for _ in range(EPOCHS):
        epoch(tf.random.shuffle(tf.range(len(images))))
    return lambda given: np.concatenate([ops.softmax(model(part)) for part in np.array_split(given, 70)])


@dataclass(frozen=True)
class Cells:
    """Networks of one data set.

    Attributes:
      data: Folder of the images.
      work: Folder of predictions and centers.
    """

    data: str
    work: Path

    @cached_property
    def images(self) -> tuple[np.ndarray, np.ndarray]:
        """Pixels of all images, and their classes."""
        return fashion_images(self.data)

    def released(self, epsilon: float, seed: int, center: str | None) -> Any:
        """Releases the classes of the training images; those of a center have 32 components of the pixels as features.

        The columns of components are known to all, and cost nothing.
        """
        pixels, classes = self.images
        frame = pd.DataFrame(index=range(TRAINING)) if center else principal_components(pixels)[:TRAINING]
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return privatize(
                frame.assign(**{"class": classes[:TRAINING]}), label="class", label_classes=list(range(CLASSES)),
                epsilon=epsilon, noise_key=bytes([seed + 1] * 32), source="fashion", center=center,
                ledger=Path(folder, "ledger.jsonl"),
            )  # fmt: skip

    def center(self, epsilon: float, seed: int) -> np.ndarray:
        """Probabilities of the default release, which are kept, shape (n, K)."""
        file = self.work / f"released_{epsilon}_{seed}.npy"
        if not file.exists():
            np.save(file, self.released(epsilon, seed, None).center)
        return np.load(file)

    def earlier(self, network: str, epsilon: float, seed: int) -> np.ndarray:
        """Predictions of a network that was trained with the likelihood, for the training images, shape (n, K)."""
        file = self.work / f"{network}_likelihood_{epsilon}_{seed}.npy"
        if not file.exists():
            self.score(network, "likelihood", epsilon, seed)
        return np.load(file)[:TRAINING]

    def score(self, network: str, training: str, epsilon: float, seed: int) -> Score:
        """Trains a network and keeps its predictions."""
        pixels, classes = self.images
        images, kept, loss = pixels.reshape(-1, 28, 28, 1), np.ones(TRAINING, bool), cross_entropy
        if training == TRUE:
            targets = np.eye(CLASSES)[classes[:TRAINING]]
        elif training == "center":
            targets = self.center(epsilon, seed)
        else:
            response = self.released(epsilon, seed, "none")
            release, z = Release.from_privatizer(response.privatizer), response.frame["class"].to_numpy()
            places = release.class_places(z)
            targets = np.eye(CLASSES)[places]
            if training == "debiased":
                targets = release.debiased(z)
            elif training == "likelihood":
                targets, loss = release.likelihood(z), forward_loss
            elif training == "posterior":
                targets = self.earlier(network, epsilon, seed) * release.likelihood(z)
                targets /= targets.sum(axis=1, keepdims=True)
            elif training == "agreed":
                kept = self.earlier(network, epsilon, seed).argmax(axis=1) == places
        predicted = trained(made(network, seed), images[:TRAINING][kept], targets[kept], loss)(images)
        np.save(self.work / f"{network}_{training}_{epsilon}_{seed}.npy", predicted)
        right = float((predicted[TRAINING:].argmax(axis=1) == classes[TRAINING:]).mean())
        return Score(network, training, epsilon, seed, right, int(kept.sum()))


def main(data: str, work: Path) -> None:
    """Writes fashion_cnn.csv beside this file."""
    work.mkdir(parents=True, exist_ok=True)
    cells, rows = Cells(data, work), read_rows("fashion_cnn", Score)
    wanted = [
        cell
        for seed, network in product(range(SEEDS), NETWORKS)
        for cell in [(network, TRUE, math.inf, seed), *product([network], TRAININGS, EPSILONS, [seed])]
        if cell not in {row[:4] for row in rows}
    ]
    write_rows("fashion_cnn", chain(rows, (cells.score(*cell) for cell in wanted)), Score)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: fashion_cnn.py DATA_FOLDER WORK_FOLDER")
    main(sys.argv[1], Path(sys.argv[2]))
