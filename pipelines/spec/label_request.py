"""Request of a `LabelPrivatizer`: its parameters, checked as the command line checks its flags."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...mechanisms.analysis.automatic import default_mechanism
from ...mechanisms.core.budget import decimal_budget, split_budget
from ...mechanisms.core.label_grid import DeclaredGrid, check_domain, label_grid, working_grid
from ...mechanisms.core.losses import loss_named
from ...mechanisms.noise.keyed_words import KEY_BYTES
from ...mechanisms.registry import AUTO, MECHANISMS, default_rounding, mechanism_named
from ...mechanisms.release.label_column import LabelColumn
from ...mechanisms.release.unit_bound import UnitBound
from ...transforms.errors import InputError
from ...transforms.io.filesystems import absolute, is_remote
from ...transforms.noise_key_file import NoiseKeyFile, default_key_path
from ...transforms.progress_log import LOGGER
from ..errors import UsageError
from ..ledger.ledger import is_database
from ..ledger.spent_budget import Caps, Window
from .mechanism_spec import takes_delta

PURPOSES = ("models", "labels")


@dataclass(frozen=True)
class LabelRequest:
    """Checked parameters of a release of labels in memory.

    Attributes:
      column: Name, domain, rounding, id column and center column.
      source: Name that stands for the input file in the identities of records.
      epsilon: Total budget of histogram and labels; with a privacy unit in `column`, that of a unit, and so are the
        others.
      prior_epsilon: Share of the histogram; None for the default split.
      mechanism: Name in `MECHANISMS`, or AUTO.
      parameters: Parameters of the mechanism, the loss among them; none of AUTO.
      loss: Name of the loss.
      caps: Caps on what the ledger adds up to.
      most_unusable: Tolerated fraction of records without a usable label.
      features: Number of features that a model will have; None if unknown.
    """

    column: LabelColumn
    source: str
    epsilon: float
    prior_epsilon: float | None
    mechanism: str
    parameters: Mapping[str, Any]
    loss: str
    caps: Caps
    most_unusable: float
    features: int | None

    def name(self, command: str) -> str:
        """Names the request of `privatize`, `fit` or `apply` in the ledger, without looking at a record.

        The name has 32 hexadecimal digits.
        """
        column = self.column
        asked: list[Any] = [
            "LabelPrivatizer", command, self.source, column.name, column.domain, column.id_column, column.rounding,
            column.center, self.epsilon, self.prior_epsilon, self.mechanism, dict(self.parameters),
        ]  # fmt: skip
        if column.unit is not None:
            # Names of earlier releases stay: "drop" was one of two treatments of further records.
            asked.append([*column.unit.request, "drop", column.unit.delta])
        return hashlib.blake2b(json.dumps(asked).encode(), digest_size=16).hexdigest()

    @property
    def record_budget(self) -> tuple[float, float | None]:
        """Epsilon of one record, in all and for the histogram; None for the default split."""
        unit, prior = self.column.unit, self.prior_epsilon
        if unit is None:
            return decimal_budget(self.epsilon), prior
        return unit.record_share(self.epsilon), None if prior is None else unit.record_share(prior)

    def check_unusable(self, records: int, unusable: int) -> None:
        """Checks the number of records without a usable label, which is public.

        `records` is the number of those with one. Raises ValueError if there are no records, no record has a usable
        label, or too many have none.
        """
        if records == 0:
            raise ValueError("no record has a usable label" if unusable else "there are no records")
        if unusable > self.most_unusable * (records + unusable):
            raise ValueError(
                f"{unusable:,} of {records + unusable:,} records have no usable label (missing, NaN or infinite), more "
                f"than max_unusable_fraction {self.most_unusable:g}: fix them, leave them out, or raise it"
            )


def check_request(parameters: Mapping[str, Any]) -> LabelRequest:
    """Checks all parameters of a `LabelPrivatizer`, by name. Raises ValueError, which names a wrong one."""
    get = parameters.__getitem__
    loss, mechanism = get("loss"), get("mechanism")
    if get("for_") is not None:
        if get("for_") not in PURPOSES:
            raise ValueError(f"for_ must be {' or '.join(PURPOSES)}, not {get('for_')!r}")
        if mechanism != AUTO:
            raise ValueError("for_ chooses the mechanism: give for_ or mechanism")
    if mechanism == AUTO:
        mechanism = default_mechanism(get("for_"), loss)
    unit, delta = _unit(parameters), get("delta")
    if delta is not None and not 0 < delta < 1:
        raise ValueError(f"delta must be above 0 and below 1, not {delta:g}; for pure label DP leave it out")
    share = delta if delta is None or unit is None else unit.record_share(delta)
    if unit is not None and delta is not None and not (mechanism in MECHANISMS and takes_delta(mechanism)):
        # Of a pure mechanism it is the delta with which the epsilons of a unit's labels are composed.
        unit, share = dataclasses.replace(unit, delta=delta), None
    own = _mechanism_parameters(mechanism, get("mechanism_parameters"), loss, share)
    epsilon, prior_epsilon = float(get("epsilon")), get("prior_epsilon")
    split_budget(epsilon, 1, 1, prior_epsilon)
    domain, declared = _domain(parameters, epsilon)
    rounding = default_rounding(mechanism, declared is not None) if get("rounding") is None else get("rounding")
    named = (_text(parameters, "label"), domain, get("id_column"), rounding, get("center_column"))
    column = LabelColumn(*named, unit=unit, declared=declared)
    loss_named(loss).check(column.labels if column.center is None else column.residuals.grid)
    if not 0 <= get("max_unusable_fraction") <= 1:
        raise ValueError(f"max_unusable_fraction must be between 0 and 1, not {get('max_unusable_fraction'):g}")
    request = LabelRequest(
        column,
        _text(parameters, "source"),
        epsilon,
        None if prior_epsilon is None else float(prior_epsilon),
        mechanism,
        own,
        loss,
        _caps(get("epsilon_cap"), get("delta_cap"), get("cap_window")),
        get("max_unusable_fraction"),
        get("features"),
    )
    try:
        split_budget(request.record_budget[0], 1, 1, request.record_budget[1])
    except ValueError as error:
        raise ValueError(
            f"max_records_per_unit leaves each record too little of epsilon {epsilon:g}: {error}"
        ) from None
    return request


def _unit(parameters: Mapping[str, Any]) -> UnitBound | None:
    column, most = parameters["unit_column"], parameters["max_records_per_unit"]
    if (column is None) != (most is None):
        raise ValueError("unit_column and max_records_per_unit belong together: give both, or neither")
    if column is None:
        return None
    if type(most) is not int:
        raise ValueError("max_records_per_unit must be a whole number")
    return UnitBound(column, most)


def _text(parameters: Mapping[str, Any], name: str) -> str:
    if not isinstance(parameters[name], str):
        raise ValueError(f"{name} must be text")
    return parameters[name]


def _domain(parameters: Mapping[str, Any], epsilon: float) -> tuple[tuple[float, ...], DeclaredGrid | None]:
    """The labels that a mechanism uses, and the declared grid if it is finer."""
    labels, declared = working_grid(_declared_domain(parameters), epsilon)
    return tuple(labels.tolist()), declared


def _declared_domain(parameters: Mapping[str, Any]) -> np.ndarray:
    grid = [parameters[name] for name in ("label_min", "label_max", "label_step")]
    if parameters["label_values"] is not None:
        if any(bound is not None for bound in grid):
            raise ValueError("label_values replaces label_min, label_max and label_step: give one or the other")
        labels = np.array(parameters["label_values"], np.float64)
        check_domain(labels)
        return labels
    if any(bound is None for bound in grid):
        raise ValueError(
            "the public label domain is missing: give label_min, label_max and label_step, or label_values"
        )
    # The text of a float is the shortest decimal that it is read from: 0.1 is exactly one tenth.
    return label_grid(*map(str, grid))


def _mechanism_parameters(name: str, given: Mapping[str, Any] | None, loss: str, delta: float | None) -> dict[str, Any]:
    own = dict(given or {})
    if name == AUTO and own:
        raise ValueError("mechanism_parameters needs a mechanism: auto finds them itself")
    if delta is not None and (name == AUTO or (name in MECHANISMS and not takes_delta(name))):
        raise ValueError(f"delta is for mechanisms of (epsilon, delta)-DP, such as gaussian; {name} is pure DP")
    for parameter in {"delta", "loss"} & own.keys():
        raise ValueError(f"mechanism_parameters must not have {parameter!r}: it is a parameter of its own")
    if name == AUTO:
        return {}
    own = {"loss": loss, **own} | ({} if delta is None else {"delta": delta})
    mechanism_named(name, **own)
    return own


def _caps(epsilon: float | None, delta: float | None, window: str | None) -> Caps:
    if epsilon is not None and not epsilon > 0:
        raise ValueError(f"epsilon_cap must be above 0, not {epsilon:g}")
    if delta is not None and not 0 <= delta < 1:
        raise ValueError(f"delta_cap must be at least 0 and below 1, not {delta:g}")
    length = None
    if window is not None:
        if epsilon is None and delta is None:
            raise ValueError("cap_window is the time in which a cap holds: give epsilon_cap or delta_cap")
        try:
            length = Window.parse(window)
        except (TypeError, ValueError) as error:
            raise ValueError(f"cap_window {error}") from None
    # A user who caps epsilon alone expects pure DP.
    return Caps(epsilon, 0.0 if delta is None and epsilon is not None else delta, length)


def load_key(noise_key: bytes | None, noise_key_file: Any) -> bytes:
    """Loads the secret key of 32 bytes.

    A local file that does not exist is created, mode 0600, with a key from the system. Without `noise_key`, reads the
    key from the file, by default the user's. Raises ValueError if both are given, or the key is not 32 bytes; the key
    is not in the message. Raises InputError if the file cannot be used.
    """
    if noise_key is not None:
        if noise_key_file is not None:
            raise ValueError("noise_key and noise_key_file are given: leave one of them out")
        if not isinstance(noise_key, bytes) or len(noise_key) != KEY_BYTES:
            raise ValueError(f"noise_key must be {KEY_BYTES} bytes from the operating system, as os.urandom gives them")
        return noise_key
    try:
        key = NoiseKeyFile(default_key_path() if noise_key_file is None else absolute(str(noise_key_file)))
    except InputError as error:
        raise InputError(in_python(str(error))) from None
    if not is_remote(key.path):
        try:
            created = key.create()
        except OSError as error:
            raise InputError(f"noise key file {key.path} cannot be created ({error.strerror}): name another") from None
        if created:
            LOGGER.info("created a noise key file: %s (keep it secret; the README says when to destroy it)", key.path)
    return key.load()


def ledger_place(ledger: Any) -> str:
    """Absolute path of the ledger, or URL of its database.

    None is for labeldp_ledger.jsonl in the current folder, the default of commands whose output lies there.
    """
    text = "labeldp_ledger.jsonl" if ledger is None else str(ledger)
    return text if is_database(text) else absolute(text)


def in_python(text: str) -> str:
    """Names parameters in place of flags in a message, such as that of --epsilon_cap."""
    return re.sub(r"--(\w+)", lambda flag: "for_" if flag[1] == "for" else flag[1], text)


@contextmanager
def python_errors() -> Iterator[None]:
    """Raises errors of the command line, in a block, as errors that name parameters.

    An InputError is raised in place of an InputError or UsageError that names flags.
    """
    try:
        yield
    except (InputError, UsageError) as error:
        raise InputError(in_python(str(error))) from None
