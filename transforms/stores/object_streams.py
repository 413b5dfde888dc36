"""Streams over objects: reading in ranges, writing in parts."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from ..errors import StoreError

_ATTEMPTS = 3


class ObjectReader(io.RawIOBase):
    """Reads an object as one stream from the present position on; a seek begins a new one.

    A stream that breaks off is opened again where it ended.
    """

    BUFFER = 1 << 20
    mode = "rb"

    def __init__(self, size: int, stream: Callable[[int], Any], reasons: Callable[[], AbstractContextManager[None]]):
        """Opens nothing yet; `size` is that of the object in bytes.

        `stream` opens a stream, with `read` and `close`, from a byte on. `reasons` is a context that raises StoreError
        for errors of `read`.
        """
        self._size = size
        self._open_stream = stream
        self._reasons = reasons
        self._stream: Any = None
        self._position = 0

    def readable(self) -> bool:
        """Tells that it can be read."""
        return True

    def seekable(self) -> bool:
        """Tells that it can seek."""
        return True

    def tell(self) -> int:
        """Position in bytes from the start."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Moves to a position, as in `io.IOBase`, and returns it."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        position = max(base + offset, 0)
        if position != self._position:
            self._drop()
        self._position = position
        return position

    def readinto(self, buffer: Any) -> int:
        """Reads into a buffer, as in `io.RawIOBase`.

        Returns the number of bytes read; 0 at the end. Raises StoreError if the store refuses, or the stream breaks off
        three times.
        """
        wanted = min(len(buffer), self._size - self._position)
        if wanted <= 0:
            return 0
        for attempts_left in reversed(range(_ATTEMPTS)):
            try:
                if self._stream is None:
                    self._stream = self._open_stream(self._position)
                with self._reasons():
                    found = self._stream.read(wanted)
                if found:
                    buffer[: len(found)] = found
                    self._position += len(found)
                    return len(found)
                raise StoreError("the object ended early")
            except StoreError:
                self._drop()
                if not attempts_left:
                    raise
        return 0

    def readall(self) -> bytes:
        """Reads the rest; `io.RawIOBase` would ask for 8 KiB at a time, each a request on Google's store."""
        return b"".join(iter(lambda: self.read(self.BUFFER), b""))

    def close(self) -> None:
        """Closes the stream."""
        self._drop()
        super().close()

    def _drop(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None


class Upload(Protocol):
    """An object that is being written."""

    def part_bytes(self) -> int:
        """Size of the next part in bytes."""
        ...

    def add(self, content: bytes) -> None:
        """Writes a part."""
        ...

    def finish(self, rest: bytes) -> None:
        """Makes the object appear; `rest` is the last part, which may be empty."""
        ...

    def give_up(self) -> None:
        """Drops what was written."""
        ...


class ObjectWriter(io.RawIOBase):
    """Writes an object, which appears when the stream is closed, and never if the `with` block raises."""

    def __init__(self, upload: Upload):
        """Begins."""
        self._upload = upload
        self._buffer = bytearray()
        self._written = 0
        self._ended = False

    def writable(self) -> bool:
        """Tells that it can be written to."""
        return True

    def tell(self) -> int:
        """Number of bytes written."""
        return self._written

    def write(self, content: Any) -> int:
        """Writes all of the content, as in `io.BufferedIOBase`: bytes, or an object with a buffer of bytes.

        Returns the number of bytes written.
        """
        size = memoryview(content).nbytes
        self._buffer += content
        self._written += size
        while len(self._buffer) > (part := self._upload.part_bytes()):
            self._upload.add(bytes(self._buffer[:part]))
            del self._buffer[:part]
        return size

    def close(self) -> None:
        """Makes the object appear."""
        if not self._ended:
            self._ended = True
            try:
                self._upload.finish(bytes(self._buffer))
            except BaseException:
                self._give_up()
                raise
            finally:
                self._buffer.clear()
                super().close()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """Closes the stream, or gives the object up if the block raised."""
        if kind is None:
            self.close()
        else:
            self.discard()

    def discard(self) -> None:
        """Gives the object up."""
        if not self._ended:
            self._ended = True
            self._buffer.clear()
            self._give_up()
            super().close()

    def __del__(self) -> None:
        """Gives the object up: a writer that was not closed is of a bundle that failed."""
        if not self._ended:
            self._ended = True
            super().close()

    def _give_up(self) -> None:
        try:
            self._upload.give_up()
        except StoreError:
            # A later run, or a rule of the bucket, removes the parts.
            return
