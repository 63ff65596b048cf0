"""Signals that ask a run to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_on_signal(say: Callable[[str], None]) -> Iterator[threading.Event]:
    """SIGINT and SIGTERM ask for a stop after the running episode; a second one stops at once."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        say("stopping when this episode ends, with a checkpoint; the same again stops at once")

    previous = {name: signal.signal(name, ask) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for name, handler in previous.items():
            signal.signal(name, handler)
