"""Work measured in calls instead of seconds: the same on every machine, however busy (times are bench/'s affair)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def function_calls(run: Callable[[], Any]) -> int:
    """How many functions, Python's and C's, `run` calls in all."""
    count = 0

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(before)
    return count
