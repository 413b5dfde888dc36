"""Names of the files of a release, as a manifest or a job result states them: the one check before any is opened.

Manifests and results are read from folders that others may write to. A name is one that a release can have, which
leads to no other folder, and what stands there is a regular file, reached through no link. `audit/release_files` has
the auditor's own check.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator

from ...transforms.errors import InputError

RELEASE_FILE = re.compile(
    r"data/([^/=\0]+=[^/\0]*/)*part-\d{5}-of-\d{5}\.(tfrecord|tfrecord\.gz|parquet)|validation/[a-z_]+\.(pb|pbtxt)"
    r"|(labels/[^/.\0]+/)?(release|mechanism|center)\.json|dead_letters(-\d{5}-of-\d{5})?\.jsonl|signature\.json",
    re.ASCII,
)


def released_file(folder: str, name: str) -> str:
    """Path of a file of a release, from its name below the release.

    Raises InputError if a release has no file of this name, or there is none, or a link in its place.
    """
    if not RELEASE_FILE.fullmatch(name):
        raise InputError(f"{folder} names the file {name}, which no release has: restore the release")
    # Loads pyarrow, which studies of local files do without.
    from ...transforms.io.filesystems import is_remote

    if is_remote(folder):
        return f"{folder.rstrip('/')}/{name}"
    path, parts = folder, name.split("/")
    for depth, part in enumerate(parts, 1):
        path = os.path.join(path, part)
        try:
            mode = os.lstat(path).st_mode
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from None
        if not (stat.S_ISREG if depth == len(parts) else stat.S_ISDIR)(mode):
            raise InputError(f"{path} is a link, or no regular file: restore the release")
    return path


def plain_files(folder: str) -> Iterator[str]:
    """Names of all files below a local folder, and of its empty folders with a slash at the end.

    Raises InputError if there is a link or another special file.
    """
    for root, folders, names in os.walk(folder):
        below = os.path.relpath(root, folder).replace(os.sep, "/") + "/" if root != folder else ""
        for name in (*folders, *names):
            try:
                mode = os.lstat(os.path.join(root, name)).st_mode
            except FileNotFoundError:
                # A job that is running has renamed or deleted it.
                continue
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise InputError(
                    f"{os.path.join(root, name)} is a link or a special file, which no job makes: nothing is released. "
                    "Delete it"
                )
        yield from (below + name for name in names)
        if below and not folders and not names:
            yield below
