"""The store of a URL, with the options of this process."""

from __future__ import annotations

from typing import Any

from ..errors import InputError
from .object_store import EXTRAS, ObjectStore, install

_STORES: dict[str, tuple[Any, ObjectStore]] = {}
"""By scheme, the options and the store that they were last asked for with."""


def store_of(path: str) -> ObjectStore:
    """Store of a URL, with the options that Beam's filesystems have in this process.

    Raises InputError, which names the extra, if its library is not installed.
    """
    # Local files need no Beam.
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.options.value_provider import RuntimeValueProvider

    scheme = path.partition(":")[0]
    # Beam's own rule: the options of this process, or those that the runner has sent to its worker.
    options: Any = FileSystems._pipeline_options or RuntimeValueProvider.runtime_options
    # Parsing options takes some milliseconds, and there is a store for each operation.
    known = _STORES.get(scheme)
    if known is not None and known[0] is options:
        return known[1]
    if isinstance(options, dict):
        parsed = PipelineOptions.from_dictionary(options)
    else:
        parsed = PipelineOptions([]) if options is None else options
    try:
        if scheme == "s3":
            from .s3_store import S3Store as Store
        else:
            from .google_store import GoogleStore as Store
        store = Store(parsed)
        _STORES[scheme] = options, store
        return store
    except ImportError:
        raise InputError(f"{scheme}:// needs the extra {EXTRAS[scheme]}: {install(scheme)}") from None
