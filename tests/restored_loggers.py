"""Restores the loggers that a command configures for its whole process."""

import contextlib
import logging
from collections.abc import Iterator


@contextlib.contextmanager
def loggers_restored() -> Iterator[None]:
    """Restores the loggers if a command has configured them in the block; handlers of fixtures stay otherwise."""
    loggers = [logging.getLogger(name) for name in ("labeldp", "apache_beam")]
    before = [(logger, logger.handlers[:], logger.level, logger.propagate) for logger in loggers]
    try:
        yield
    finally:
        if loggers[0].propagate != before[0][-1]:
            for logger, handlers, level, propagate in before:
                logger.handlers[:], logger.propagate = handlers, propagate
                logger.setLevel(level)
