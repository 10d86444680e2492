"""How processes that start together see that they disagree."""

from __future__ import annotations

import json
import threading
import time

import pytest

import hlokit as hk
from hlokit.interop.pjrt.processes import Carrier, joined


class Values:
    """A store in this process."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition()

    def put(self, key: str, value: bytes) -> None:
        with self._changed:
            self._values[key] = value
            self._changed.notify_all()

    def get(self, key: str, seconds: float) -> bytes | None:
        with self._changed:
            self._changed.wait_for(lambda: key in self._values, seconds)
            return self._values.get(key)


def test_process_0_stays_until_a_slow_one_has_seen_that_they_disagree() -> None:
    store = Values()
    facts = {"hlokit": "0.0.1", "engine": "gloo", "processes": 2, "devices": 1}
    store.put("hlokit/0/1", json.dumps(facts).encode())
    threading.Timer(4.0, store.put, ["hlokit/0/seen/1", b"seen"]).start()
    start = time.monotonic()
    with pytest.raises(hk.ArgumentError, match=f"process 1 has hlokit='0.0.1', process 0 '{hk.__version__}'"):
        joined(0, 2, 1, store, 0, Carrier("gloo"))
    assert 4.0 <= time.monotonic() - start < 10.0
