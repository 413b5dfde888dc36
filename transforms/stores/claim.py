"""Claim of an output on an object store: one run, once, copies its files there (docs/claim_once.md has the proof).

A run writes into a folder of its own, below the staging folder beside its output. When its files are complete, it
claims the output, begins, and has the store copy them to their names. Each step is one object that is written on a
condition, so that of two runs one gets the output, and of two processes of one run none undoes what the other does. No
step asks whether a process lives. A run that was killed after its claim is ended by another process of it, `finish`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ..errors import InputError, StoreConflict, StoreError, StoreNotFound
from .object_store import ABSENT, ObjectStore, parent_and_name

_CLAIM = "claim"
_STATE = "state"
_OPEN, _BEGUN = b"open\n", b"begun\n"
_DELETIONS = 3
# A store copies several objects in the time that one takes.
_AT_ONCE = 8
_STAGED = re.compile(r"[0-9a-f]{32}")


def staging_of(target: str) -> str:
    """URL of the staging folder of a target, beside it."""
    parent, name = parent_and_name(target)
    return f"{parent}/.{name}.labeldp"


def in_staging(target: str) -> bool:
    """Tells whether a URL lies in a staging folder, where other runs would delete it as the rest of a killed one."""
    return re.search(r"/\.[^/]+\.labeldp(/|$)", target) is not None


class OutputClaimed(InputError):
    """The output is that of another run, or another process of this one has ended it."""


@dataclass(frozen=True)
class Output:
    """An output on a store, with the claim and the folders of its runs beside it.

    Attributes:
      store: Its store.
      target: URL of the folder, or of the only file.
    """

    store: ObjectStore
    target: str

    @property
    def staging(self) -> str:
        """URL of its staging folder."""
        return staging_of(self.target)

    @property
    def _claim_path(self) -> str:
        return f"{self.staging}/{_CLAIM}"

    def is_empty(self) -> bool:
        """Tells whether there is no object of the output."""
        return self.store.head(self.target) is None and not any(self.store.list(f"{self.target}/"))

    def runs(self) -> dict[str, list[str]]:
        """URLs of the objects of each run, by its name."""
        found: dict[str, list[str]] = {}
        for info in self.store.list(f"{self.staging}/"):
            run = info.path[len(self.staging) + 1 :].partition("/")[0]
            if _STAGED.fullmatch(run):
                found.setdefault(run, []).append(info.path)
        return found

    def run(self, name: str) -> StagedRun:
        """The run of a name."""
        return StagedRun(self, name)

    def claim(self) -> tuple[str, str, str] | None:
        """State (claimed or over), run and version of the claim; None if there is none."""
        found = self.store.read(self._claim_path)
        if found is None:
            return None
        stated = re.fullmatch(rb"(claimed|over) ([0-9a-f]{32})\n", found[0])
        if stated is None:
            raise InputError(f"{self._claim_path} is no claim that labeldp has written: delete it")
        return stated[1].decode(), stated[2].decode(), found[1]

    def settle(self) -> str | None:
        """Removes what is left of a run that is over; returns the run that has claimed the output, if any."""
        found = self.claim()
        if found is None:
            return None
        if found[0] == "claimed":
            return found[1]
        self.clean_up(found[1])
        return None

    def clean_up(self, run: str) -> None:
        """Removes the files of a run that is over, and those of runs that never claimed; the claim last."""
        self.run(run).delete()
        for begin in (self.target, f"{self.target}/"):
            self.store.abort_uploads(begin)
        for other in self.runs().keys() - {run}:
            self.run(other).give_up()
        found = self.claim()
        if found is not None and found[:2] == ("over", run):
            with contextlib.suppress(StoreConflict):
                self.store.delete_version(self._claim_path, found[2])

    def write_claim(self, state: str, run: str, replaces: str) -> bool:
        """Writes the claim, if it has a version; tells whether it had."""
        try:
            self.store.write(self._claim_path, f"{state} {run}\n".encode(), replaces)
        except (StoreConflict, StoreNotFound):
            return False
        return True


@dataclass(frozen=True)
class StagedRun:
    """A run that writes below the staging folder of its output.

    Attributes:
      output: Its output.
      name: 32 hexadecimal digits, never those of another run.
    """

    output: Output
    name: str

    @property
    def work(self) -> str:
        """URL of its folder."""
        return f"{self.output.staging}/{self.name}"

    @property
    def _state_path(self) -> str:
        return f"{self.work}/{_STATE}"

    def open(self) -> None:
        """Marks the run as one that may claim, before any other file of it is written."""
        # Written before by an attempt whose answer was lost, or whose worker was.
        with contextlib.suppress(StoreConflict):
            self.output.store.write(self._state_path, _OPEN, ABSENT)

    def has_begun(self) -> bool:
        """Tells whether a process of this run has begun to publish it, from when on its files do not change."""
        return self._state() == _BEGUN

    def is_removed(self) -> bool:
        """Tells whether the run is over, or another one that was released has removed its files."""
        return self._state() is None

    def _state(self) -> bytes | None:
        found = self.output.store.read(self._state_path)
        return None if found is None else found[0]

    def give_up(self) -> bool:
        """Deletes the files of a run that has not begun, which never will; False if it has."""
        store = self.output.store
        found = store.read(self._state_path)
        if found is not None:
            if found[0] != _OPEN:
                return False
            try:
                store.delete_version(self._state_path, found[1])
            except StoreConflict:
                return False
        self.delete()
        self.end()
        return True

    def delete(self) -> None:
        """Deletes all files, again if workers of a run that was interrupted still write."""
        store, prefix = self.output.store, f"{self.work}/"
        for _ in range(_DELETIONS):
            store.abort_uploads(prefix)
            left = [info.path for info in store.list(prefix)]
            if not left:
                return
            store.delete(left)

    def claim(self) -> None:
        """Claims the output and begins, whose files are complete and checked.

        Raises OutputClaimed if another run has the output, or there is something in it: nothing is charged.
        """
        output = self.output
        while not output.write_claim("claimed", self.name, ABSENT):
            found = output.claim()
            if found is None:
                continue
            state, run, _ = found
            if state == "over":
                output.clean_up(run)
            elif run == self.name:
                break
            else:
                self.give_up()
                raise claimed_error(output.target)
        self._begin()
        if not self.has_begun():
            self.end()
            raise OutputClaimed(
                f"{output.target} exists, or another command has ended this run: nothing is released now"
            )

    def _begin(self) -> None:
        """Decides, for all processes of this run, whether it is released: not if there is something in the output."""
        store, empty = self.output.store, self.output.is_empty()
        found = store.read(self._state_path)
        if found is not None and found[0] == _OPEN:
            with contextlib.suppress(StoreConflict, StoreNotFound):
                if empty:
                    store.write(self._state_path, _BEGUN, found[1])
                else:
                    store.delete_version(self._state_path, found[1])

    def publish(self, files: Mapping[str, str], last: str) -> None:
        """Copies files to the output within the store, from URL to URL; `last` is the target that makes it a release.

        The run has begun, and is charged. Raises StoreConflict if there is an object of others.
        """

        def copy(source: str) -> None:
            self.output.store.copy(source, files[source], self.name)

        *first, final = sorted(files, key=lambda source: files[source] == last)
        try:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                for _ in pool.map(copy, first):
                    pass
            copy(final)
        except StoreNotFound:
            # Another process of this run has ended it meanwhile.
            if not self.is_published(last):
                raise

    def is_published(self, last: str) -> bool:
        """Tells whether the output has all files of this run, by the one that is copied last."""
        found = self.output.store.head(last)
        return found is not None and found.tag == self.name

    def end(self) -> None:
        """Ends the claim of this run, if it has it, and removes its files. If the store fails, the next run does."""
        with contextlib.suppress(StoreError):
            found = self.output.claim()
            if found is None or found[1] != self.name:
                return
            if found[0] == "over" or self.output.write_claim("over", self.name, found[2]):
                self.output.clean_up(self.name)


def claimed_error(target: str) -> OutputClaimed:
    """Error of a run whose output another one has claimed."""
    return OutputClaimed(
        f"another run publishes its release to {target}, or was killed as it did: `labeldp finish {target}` ends it. "
        "Nothing is released or charged"
    )
