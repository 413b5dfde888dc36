"""Keras network of three dense layers, as in the papers. Needs TensorFlow, of the extra `network`.

Sources: Ghazi et al. 2022, appendix E (128, 64 and 1 units); Liu and Huang, section 5 (50 epochs of Adam with learning
rate 0.001, divided by ten for the second half, and weight decay 1e-4).
"""

from __future__ import annotations

import atexit
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...transforms.validation.quiet_import import import_quietly

UNITS = (128, 64)
EPOCHS = (1, 2, 4, 8, 16, 25, 33, 50)
"""Epochs after which predictions are made."""
_LEARNING_RATE = 1e-3
_WEIGHT_DECAY = 1e-4
_BATCH = 256
_STEPS_PER_EPOCH = 64
_LOCK = threading.Lock()


def fit_network(
    features: np.ndarray, targets: np.ndarray, others: Sequence[np.ndarray], seed: int
) -> tuple[np.ndarray, ...]:
    """Trains the network from predictions of 0 and predicts other records after some epochs.

    A batch has 256 records, or n / 64 if that is more. Threads take turns.

    Features have the shape (n, d), targets of about unit variance (n,), each of the others (t, d). For each of the
    others, returns predictions after each of EPOCHS, shape (len(EPOCHS), t). All are float64.
    """
    # All fits share the compiled network with its variables.
    with _LOCK:
        return _fit(_network(features.shape[1]), features, targets, others, seed)


def _fit(
    network: _Network, features: np.ndarray, targets: np.ndarray, others: Sequence[np.ndarray], seed: int
) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    for variable in network.variables:
        variable.assign(_initial(tuple(variable.shape), rng))
    rows, values = features.astype(np.float32), targets.astype(np.float32)[:, None]
    new = [other.astype(np.float32) for other in others]
    batch = max(_BATCH, -(-len(rows) // _STEPS_PER_EPOCH))
    found: list[list[np.ndarray]] = [[] for _ in others]
    network.restart()
    for epoch in range(1, EPOCHS[-1] + 1):
        network.set_rate(_LEARNING_RATE * (1.0 if epoch <= EPOCHS[-1] // 2 else 0.1))
        order = rng.permutation(len(rows))
        network.train(rows[order], values[order], batch)
        if epoch in EPOCHS:
            for predictions, each in zip(found, new, strict=True):
                predictions.append(network.predict(each).numpy()[:, 0].astype(np.float64))
    return tuple(np.stack(predictions) for predictions in found)


def _initial(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Glorot uniform weights; zeros for biases and for the last layer, so that predictions start from 0."""
    if len(shape) < 2 or shape[-1] == 1:
        return np.zeros(shape, np.float32)
    limit = np.sqrt(6 / sum(shape))
    return rng.uniform(-limit, limit, shape).astype(np.float32)


class _Network(NamedTuple):
    variables: list[Any]
    restart: Callable[[], None]
    set_rate: Callable[[float], None]
    train: Callable[..., Any]
    predict: Callable[..., Any]


@functools.lru_cache(maxsize=4)
def _network(width: int) -> _Network:
    """Compiles the network once per process and width: compiling takes longer than a fit."""
    tensorflow = import_quietly("tensorflow")
    try:
        # Cells already run in parallel, and a single thread adds floats in a fixed order.
        tensorflow.config.threading.set_intra_op_parallelism_threads(1)
        tensorflow.config.threading.set_inter_op_parallelism_threads(1)
    except RuntimeError:
        # TensorFlow is already initialized.
        pass
    keras: Any = tensorflow.keras
    layers = [keras.layers.Dense(units, activation="relu") for units in UNITS]
    model = keras.Sequential([keras.Input((width,)), *layers, keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam(_LEARNING_RATE, weight_decay=_WEIGHT_DECAY)
    optimizer.build(model.trainable_variables)
    matrix = tensorflow.TensorSpec((None, width), tensorflow.float32)
    column = tensorflow.TensorSpec((None, 1), tensorflow.float32)

    @tensorflow.function(input_signature=[matrix, column, tensorflow.TensorSpec((), tensorflow.int32)])
    def train(rows: Any, values: Any, batch: Any) -> None:
        for start in tensorflow.range(0, tensorflow.shape(rows)[0], batch):
            with tensorflow.GradientTape() as tape:
                errors = model(rows[start : start + batch]) - values[start : start + batch]
                loss = tensorflow.reduce_mean(errors**2)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    @tensorflow.function(input_signature=[matrix])
    def predict(rows: Any) -> Any:
        return model(rows)

    def restart() -> None:
        for variable in optimizer.variables:
            variable.assign(tensorflow.zeros_like(variable))

    def set_rate(rate: float) -> None:
        optimizer.learning_rate.assign(rate)

    return _Network(model.trainable_variables, restart, set_rate, train, predict)


# Releases the compiled functions while TensorFlow is still loaded; later it reports errors.
atexit.register(_network.cache_clear)
