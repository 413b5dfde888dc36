"""Lease on a place of an object store: one run at a time writes there.

Object stores have no locks that end with a process. A lease is an object that its run renews every few seconds. A lease
that stays the same for a minute, or whose process is known to be gone, is that of a killed run, and is taken over.
Every write of it has a condition, so that of two runs only one gets it, and a run that was suspended finds out that it
lost its lease.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import InputError, StageError, StoreConflict, StoreError, StoreNotFound
from .object_store import ABSENT, ObjectStore, require_conditions

_RENEWAL_SECONDS = 10.0
_PATIENCE_SECONDS = 60.0
_POLL_SECONDS = 2.0


class Lease:
    """A lease that this process holds.

    Attributes:
      run: Name of the run: 32 hexadecimal digits.
      left: True to leave the lease behind, as a killed run does, so that the next run looks for what is left of this.
    """

    def __init__(self, store: ObjectStore, path: str):
        """Names the lease; `acquire` acquires it.

        Args:
          store: The store.
          path: URL of the lease.
        """
        self.left = False
        self.run = uuid.uuid4().hex
        self._store = store
        self._path = path
        self._version = ABSENT
        self._renewals = 0
        self._lost = False
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def acquire(self, waiting: Callable[[], None]) -> bool:
        """Acquires the lease; waits for up to a minute to find out whether a run that holds it is alive.

        Args:
          waiting: Called once before it waits.

        Returns:
          True if a killed run had held it.

        Raises:
          InputError: If another run holds it, or the store ignores conditions.
        """
        require_conditions(self._store, self._path)
        found = self._store.read(self._path)
        if found is not None and not _is_gone(found[0]):
            waiting()
            until = time.monotonic() + _PATIENCE_SECONDS
            while time.monotonic() < until:
                time.sleep(_POLL_SECONDS)
                now = self._store.read(self._path)
                if now is None or now[1] != found[1]:
                    raise InputError(f"another run is writing there ({self._path}): wait for its end")
        try:
            self._write(ABSENT if found is None else found[1])
        except (StoreConflict, StoreNotFound):
            raise InputError(f"another run has begun to write there ({self._path}): wait for its end") from None
        return found is not None

    @contextlib.contextmanager
    def renewed(self) -> Iterator[None]:
        """Renews the lease during a block, and deletes it at its end unless it was lost or is to be left.

        Yields:
          Nothing.
        """
        thread = threading.Thread(target=self._renew, name="labeldp-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join(_RENEWAL_SECONDS)
            if not self.left:
                self._delete()

    def _delete(self) -> None:
        with self._lock, contextlib.suppress(StoreError):
            found = self._store.read(self._path)
            if found is not None and found[1] == self._version:
                self._store.delete([self._path])

    def check(self) -> None:
        """Checks that this run still has the lease, by renewing it.

        Raises:
          StageError: If it was lost: this process was stopped for a minute, and another run took over.
          StoreError: If the store does not answer.
        """
        with self._lock:
            if not self._lost:
                try:
                    self._write(self._version)
                except (StoreConflict, StoreNotFound):
                    self._lost = not self._is_ours()
            if self._lost:
                raise StageError(f"this run was stopped for so long that another one has taken over ({self._path})")

    def _is_ours(self) -> bool:
        """A write whose answer was lost leaves the lease with a version that this process does not know."""
        found = self._store.read(self._path)
        if found is None or json.loads(found[0]).get("run") != self.run:
            return False
        self._version = found[1]
        return True

    def _renew(self) -> None:
        while not self._ended.wait(_RENEWAL_SECONDS):
            # Tried again at the next renewal, and before anything is released.
            with contextlib.suppress(StoreError, StageError):
                self.check()

    def _write(self, replaces: str) -> None:
        # Counted, so that every renewal changes the ETag, which is a hash of the content.
        self._renewals += 1
        holder = {"run": self.run, "renewals": self._renewals, **_this_process()}
        self._version = self._store.write(self._path, json.dumps(holder).encode(), replaces)


def _this_process() -> dict[str, Any]:
    return {"host": socket.gethostname(), "machine": _machine(), "process": os.getpid(), "started": _start(os.getpid())}


def _machine() -> str | None:
    """Names the running kernel and the namespace of process ids; None where that is unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _start(process: int) -> str | None:
    """Time at which a process started, in ticks since the machine did; None if there is none, or it has ended."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            # The name in parentheses may hold anything; the state is the first field after it.
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def _is_gone(lease: bytes) -> bool:
    """Tells whether the process of a lease is known to have ended: it ran on this machine, and is no longer there."""
    try:
        holder = json.loads(lease)
        machine, process, started = holder["machine"], int(holder["process"]), holder["started"]
    except (ValueError, KeyError, TypeError):
        return False
    return machine is not None and machine == _machine() and started is not None and _start(process) != started
