"""Lease on a place of an object store: one run at a time writes there.

Object stores have no locks that end with a process. A lease is an object that its run renews every few seconds. A lease
that stays the same for a minute, or whose process is known to be gone, is that of a killed run, and is taken over.
Every write of it has a condition, so that of two runs only one gets it, and a run that was suspended finds out that it
lost its lease.

A run that is suspended right after it has looked at its lease must not change what the next run has written. No request
to a store has a condition on another object than its own. So a run writes below its target in two steps, of which
another run undoes the first when it takes over: it prepares an object (an unfinished upload of S3, else an object in
its temporary folder), checks its lease (`LeaseHold`), and finishes the upload or has the store copy the object.
Deletions, the charge and the manifests cannot be prepared. They are done within `Lease.held`, while no other run takes
the lease over unless this process is known to be gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import InputError, StageError, StoreConflict, StoreError, StoreNotFound
from .object_store import ABSENT, LEASE, ObjectStore, lease_lost, parent_and_name, require_conditions

_RENEWAL_SECONDS = 10.0
_PATIENCE_SECONDS = 60.0
_POLL_SECONDS = 2.0


def staging_of(target: str) -> str:
    """URL of the staging folder of a target, beside it."""
    parent, name = parent_and_name(target)
    return f"{parent}/.{name}.labeldp"


def lease_path(target: str) -> str:
    """URL of the lease of a target, in the staging folder."""
    return f"{staging_of(target)}/{LEASE}"


class LeaseHeld(InputError):
    """Another run has the lease, or may have it: try again after its end."""


class Lease:
    """A lease that this process holds.

    Attributes:
      run: Name of the run: 32 hexadecimal digits.
      left: True to leave the lease behind, as a killed run does, so that the next run looks for what is left of this.
      idle: True if this process no longer writes, so that the next run need not wait for its end.
      published: True once the output is released, which is not deleted then.
      job: Run whose job was submitted, and whose files are kept for a run that finishes it; None without one.
    """

    def __init__(self, store: ObjectStore, path: str, job: str | None = None, run: str | None = None):
        """Names the lease by its URL; `acquire` acquires it. With `job`, this run finishes that one.

        The run has a new name unless `run` is given.
        """
        self.left = False
        self.idle = False
        self.published = False
        self.job = job
        self.run = run or uuid.uuid4().hex
        self._store = store
        self._path = path
        self._version = ABSENT
        self._renewals = 0
        self._lost = False
        self._held = False
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def acquire(self, waiting: Callable[[], None]) -> bool:
        """Acquires the lease; waits for up to a minute to find out whether a run that holds it is alive.

        `waiting` is called once before it waits. Returns True if a killed run had held it. Raises LeaseHeld if another
        run holds it, and InputError if another run was stopped within `held`, or has submitted a job that is not the
        one to be finished, or if the store ignores conditions.
        """
        require_conditions(self._store, self._path)
        found = self._store.read(self._path)
        self._check_job(None if found is None else found[0])
        if found is not None and not _is_gone(found[0]):
            waiting()
            until = time.monotonic() + _PATIENCE_SECONDS
            while time.monotonic() < until:
                time.sleep(_POLL_SECONDS)
                now = self._store.read(self._path)
                if now is None or now[1] != found[1]:
                    raise LeaseHeld(f"another run is writing there ({self._path}): wait for its end")
            _require_free(found[0], self._path, self.job)
        try:
            self._write(ABSENT if found is None else found[1])
        except (StoreConflict, StoreNotFound):
            raise LeaseHeld(f"another run has begun to write there ({self._path}): wait for its end") from None
        return found is not None

    def _check_job(self, lease: bytes | None) -> None:
        if self.job is not None and (lease is None or self.job not in jobs_of_lease(lease)):
            raise LeaseHeld(f"another run has finished the job of this one, or taken over ({self._path})")
        if self.job is None and lease is not None and len(jobs_of_lease(lease)) > 1:
            raise InputError(
                f"a job that was submitted, and that no command waits for, writes there ({self._path}): run "
                "`labeldp finish` with this output; to give it up, delete this object and what is below the output"
            )

    def temporary(self, work: str) -> str:
        """Name of a folder for new objects of the release; `work` is the temporary folder of the run, or of its job."""
        return work if self.job in (None, self.run) else f"{parent_and_name(work)[0]}/{self.run}/job-{self.job}"

    @contextlib.contextmanager
    def renewed(self) -> Iterator[None]:
        """Renews the lease during a block, and deletes it at its end unless it was lost or is to be left."""
        thread = threading.Thread(target=self._renew, name="labeldp-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join(_RENEWAL_SECONDS)
            self._end()

    def _end(self) -> None:
        with self._lock, contextlib.suppress(StoreError):
            found = self._store.read(self._path)
            if found is None or found[1] != self._version:
                return
            if not self.left:
                self._store.delete_version(self._path, self._version)
            elif self.idle:
                self._write(self._version)

    def check(self) -> None:
        """Checks that this run still has the lease, by renewing it.

        Raises StageError if it was lost: this process was stopped for a minute, and another run took over. Raises
        StoreError if the store does not answer.
        """
        with self._lock:
            if not self._lost:
                try:
                    self._write(self._version)
                except (StoreConflict, StoreNotFound):
                    self._lost = not self._is_ours()
            if self._lost:
                raise lease_lost(self._path)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keeps the lease during a block, however long this process is stopped in it.

        Raises StageError if the lease was lost before, StoreError if the store does not answer.

        Until the block ends, another run takes over only if it knows that this process is gone.
        """
        self._held = True
        try:
            self.check()
            yield
        finally:
            self._held = False
            # Otherwise the next renewal says so, or the end of the lease.
            with contextlib.suppress(StoreError, StageError):
                self.check()

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
        idle = self.idle and self._ended.is_set()
        holder = {"run": self.run, "renewals": self._renewals, "idle": idle, "held": self._held, **_this_process()}
        if self.job is not None:
            holder["job"] = self.job
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


def jobs_of_lease(lease: bytes) -> tuple[str, ...]:
    """Runs whose job is finished by a run with this lease: its own, and before it, one that was submitted."""
    try:
        holder = json.loads(lease)
        named = [holder[key] for key in ("job", "run") if key in holder]
    except (ValueError, TypeError):
        return ()
    return tuple(name for name in named if isinstance(name, str) and re.fullmatch("[0-9a-f]{32}", name))


def _require_free(lease: bytes, path: str, job: str | None) -> None:
    """Refuses the lease of a run that was stopped within `Lease.held`, and may delete or publish when it continues.

    Of two runs that finish one job, each publishes the same.
    """
    jobs = jobs_of_lease(lease)
    if job is not None and len(jobs) == 2 and jobs[0] == job != jobs[1]:
        return
    try:
        holder = json.loads(lease)
        held = holder["held"] is True
    except (ValueError, KeyError, TypeError):
        return
    if held:
        raise InputError(
            f"another run was stopped while it published its release or deleted files ({path}: process "
            f"{holder.get('process')} on {holder.get('host')}): wait for its end; if it is gone for good, delete this "
            "object and what is below the output"
        )


def _is_gone(lease: bytes) -> bool:
    """Tells whether the process of a lease is known to write no more, or ran on this machine and is no longer there."""
    try:
        holder = json.loads(lease)
        if holder["idle"] is True:
            return True
        machine, process, started = holder["machine"], int(holder["process"]), holder["started"]
    except (ValueError, KeyError, TypeError):
        return False
    return machine is not None and machine == _machine() and started is not None and _start(process) != started
