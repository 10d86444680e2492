"""Naming rules in tests: `@rule("GATHER-3")` marks a test, `rejects("GATHER-3")` asserts that a rule's check fires."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from hlokit.errors import HlokitError

F = TypeVar("F", bound=Callable[..., object])


def rule(*labels: str) -> Callable[[F], F]:
    """Says which rules of the reference the test would catch the breaking of."""

    def mark(test: F) -> F:
        return pytest.mark.rule(*labels)(test)

    return mark


@contextmanager
def rejects(*labels: str) -> Iterator[None]:
    """The block must raise a HlokitError that carries one of the labels."""
    with pytest.raises(HlokitError) as caught:
        yield
    assert any(f"[{label}]" in str(caught.value) for label in labels), f"expected {labels}: {caught.value}"
