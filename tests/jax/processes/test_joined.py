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
        self.asked = 0

    def put(self, key: str, value: bytes) -> None:
        with self._changed:
            self._values[key] = value
            self._changed.notify_all()

    def get(self, key: str, seconds: float) -> bytes | None:
        with self._changed:
            self.asked += 1
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


@pytest.mark.parametrize("count", [8, 40])
def test_what_processes_ask_of_the_store_grows_as_their_number(count: int) -> None:
    store = Values()
    texts: list[str] = []

    def start(process: int) -> None:
        engine = "other" if process == count - 1 else "gloo"
        with pytest.raises(hk.ArgumentError) as error:
            joined(process, count, 1, store, 0, Carrier(engine))
        texts.append(str(error.value))

    threads = [threading.Thread(target=start, args=[process]) for process in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(texts) == count and all("has engine=" in text for text in texts)
    assert store.asked <= 3 * count
