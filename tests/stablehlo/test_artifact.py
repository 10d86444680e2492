"""Portable artifacts: what jaxlib wrote is read as the module that its text is; what is broken is refused."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import hlokit as hk
from hlokit.errors import UnsupportedError

ARTIFACTS = Path(__file__).parents[1] / "data" / "artifacts" / "artifacts.jsonl.gz"


def recorded() -> list[dict[str, Any]]:
    """Texts, each with its artifacts by version: tests/stablehlo/make_artifacts.py."""
    records = [json.loads(line) for line in gzip.decompress(ARTIFACTS.read_bytes()).splitlines()]
    for record in records:
        record["artifacts"] = {v: base64.b64decode(data) for v, data in record["artifacts"].items()}
    return records


def outcome(data: bytes | str) -> str:
    """The module's text, or the name of the error."""
    try:
        return str(hk.parse(data))
    except UnsupportedError as error:
        return type(error).__name__


RECORDED = recorded() if ARTIFACTS.exists() else []
SMALL = [data for record in RECORDED for data in record["artifacts"].values() if len(data) < 500]


@pytest.mark.parametrize("record", RECORDED, ids=range(len(RECORDED)))
def test_the_module_is_the_text_s(record: dict[str, Any]) -> None:
    expected = outcome(record["text"])
    for data in record["artifacts"].values():
        assert outcome(data) == expected


def test_most_are_read() -> None:
    kinds = [outcome(next(iter(record["artifacts"].values()))) for record in RECORDED]
    assert len(kinds) > 150
    assert kinds.count("UnsupportedError") <= 3
