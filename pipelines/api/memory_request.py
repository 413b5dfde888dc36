"""Parameters of a release in memory, checked as those of a job; its secret key, and the place of its ledger."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

from ...mechanisms.noise.keyed_words import KEY_BYTES
from ...mechanisms.registry import AUTO
from ...mechanisms.release.label_column import LabelColumn
from ...transforms.errors import InputError
from ...transforms.io.filesystems import is_remote
from ...transforms.missing_labels import Threshold
from ..errors import FieldError, FieldNames, as_parameter, named
from ..ledger.ledger import LEDGER_NAME, is_database
from ..ledger.spent_budget import Caps
from ..spec.feature_choice import CenterChoice, FeatureTable
from ..spec.fields import DEFAULT_LOSS, Fields
from ..spec.label import Label, make_label
from ..spec.label_domain import with_texts
from ..spec.target_checks import check_scheme, create_key, noise_key_file, path_of, read_caps, read_unusable_fraction
from .feature_frames import FeatureFrame, labels_and_features, read_frame
from .label_arrays import check_index, column_name, width

_OF_MEMORY = ("source", "noise_key", "features")
"""Parameters that a release of files does not have."""
_NAME_WITH_IDS = "labels"


@dataclass(frozen=True)
class MemoryRequest:
    """Checked parameters, and the name that stands for the input file in the identities of records."""

    label: Label
    source: str
    caps: Caps
    threshold: Threshold

    @property
    def column(self) -> LabelColumn:
        """The label column."""
        return self.label.column

    def check(self, records: int, unusable: int, left_out: int = 0, missing_centers: int = 0) -> None:
        """Checks numbers of records, as `Threshold.check`. Raises ValueError in place of InputError."""
        try:
            self.threshold.check(records, unusable, self.column, 0, left_out, missing_centers)
        except InputError as error:
            text = named(str(error), as_parameter)
        else:
            return
        raise ValueError(text)


@dataclass(frozen=True, eq=False)
class Given:
    """Columns of a call as the user gives them; None for those that are not given.

    `seen` are features that recipients have, where no center is made of them.
    """

    labels: object = field(repr=False)
    center: object = None
    features: FeatureFrame | None = None
    ids: object = None
    units: object = None
    seen: FeatureFrame | None = None

    @classmethod
    def of(cls, labels: object, second: object, features: object, center: object, ids: object, units: object) -> Given:
        """Tells labels and features apart, which may be given by position in either order.

        Raises ValueError if there are two centers, and TypeError for features of an unknown kind.
        """
        labels, features = labels_and_features(labels, second, features)
        if center is not None and features is not None:
            raise ValueError("center and features are two ways to a center: give one of them")
        return cls(labels, center, None if features is None else read_frame(features), ids, units)

    def check_index(self, label: object) -> None:
        """Checks that the index that labels are released with is none of the labels."""
        for name in (label, column_name(self.labels) if width(self.labels) in (None, 1) else None):
            if isinstance(name, str):
                check_index(self.labels, name)


def read_request(parameters: Mapping[str, Any], given: Given, fits: bool) -> tuple[MemoryRequest, bytes]:
    """Checks the parameters of a call, and loads the secret key; with `fits`, for a center of what is given.

    Raises ValueError if one is wrong, and InputError if the key file cannot be used.
    """
    given.check_index(parameters["label"])
    source, noise_key, number = (parameters[name] for name in _OF_MEMORY)
    if isinstance(noise_key, str):
        raise ValueError("this copy has no noise_key, which is not pickled: set_params(noise_key=...), or use a file")
    asked = {name: value for name, value in parameters.items() if name not in _OF_MEMORY}
    if asked["mechanism"] == AUTO:
        asked["mechanism"] = None
    if asked["label_classes"] is not None and asked["loss"] == DEFAULT_LOSS:
        asked["loss"] = None
    if source is None:
        # Under ids it names the request alone.
        source = _NAME_WITH_IDS if asked["id_column"] is not None else f"call {os.urandom(16).hex()}"
    if not isinstance(source, str):
        raise ValueError("source must be text")
    if number is not None and not (isinstance(number, Integral) and not isinstance(number, bool) and int(number) >= 0):
        raise ValueError("features must be a whole number of at least 0: features of records are an argument of fit")
    with python_errors(ValueError):
        fields = with_texts(Fields.of_keywords(asked, "LabelPrivatizer"))
        label = make_label(fields)
        if fits:
            label = with_features(CenterChoice.of(fields), label, given.features)
        threshold = Threshold(read_unusable_fraction(fields.max_unusable_fraction), "frame")
        caps = read_caps(fields.epsilon_cap, fields.delta_cap, fields.cap_window)
        request = MemoryRequest(label, source, caps, threshold)
    with python_errors(InputError):
        return request, load_key(noise_key, fields.noise_key_file)


def with_features(choice: CenterChoice, label: Label, features: FeatureFrame | None) -> Label:
    """Adds a center of features to a label, if one is made; the label as it is if not, or without features.

    Features that are given ask for a center, unless the mechanism is chosen automatically: whether there is one is then
    decided as for a job. Raises FieldError if a field is wrong.
    """
    if features is None:
        if choice.asked:
            raise FieldError(
                "{center} {kind} is made of features: give features=frame with the labels", kind=choice.kind
            )
        return label
    numbers = label.column.classes is None
    if numbers and choice.given is None and (choice.column is not None or label.mechanism.name != AUTO):
        choice = dataclasses.replace(choice, given=choice.kind)
    return choice.applied(label, FeatureTable(features.batch.schema, features.source))


@contextmanager
def python_errors(kind: type[Exception]) -> Iterator[None]:
    """Raises errors of fields, in a block, as errors of one class with the names of the parameters."""
    try:
        yield
    except FieldNames as error:
        raise kind(error.text(as_parameter)) from None


def load_key(noise_key: bytes | None, path: str | None) -> bytes:
    """Loads the secret key of 32 bytes; a local file that does not exist is created, mode 0600.

    Raises ValueError if both are given, or the key is not 32 bytes; the key is not in the message. Raises InputError or
    FieldError if the file cannot be used.
    """
    if noise_key is None:
        key = noise_key_file(path)
        if not is_remote(key.path):
            create_key(key)
        return key.load()
    if path is not None:
        raise ValueError("noise_key and noise_key_file are given: leave one of them out")
    if not isinstance(noise_key, bytes) or len(noise_key) != KEY_BYTES:
        raise ValueError(f"noise_key must be {KEY_BYTES} bytes from the operating system, as os.urandom gives them")
    return noise_key


def ledger_place(ledger: str | os.PathLike[str] | None) -> str:
    """Path of the ledger, or URL of its database; by default beside an output that lies in the current folder."""
    text = LEDGER_NAME if ledger is None else os.fspath(ledger)
    if not text.strip():
        raise FieldError("{ledger} is empty: name a path")
    if is_database(text):
        return text
    if is_remote(text):
        check_scheme(text)
    return path_of("ledger", text)
