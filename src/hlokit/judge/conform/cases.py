"""The cases of the conformance suite: data of the package, `cases.jsonl.gz`.

Each line is a case as JSON: id, rules, hlo (HLO text), in and out (the arrays of the arguments and of the result in
order, of several devices those of each in turn; their elements as little-endian row-major bytes in base64, where types
narrower than a byte take one each). A case with
a kind has a text alone: "refusal", which is no legal program, or "text", which is to be read and printed.
"""

from __future__ import annotations

import gzip
import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any, Literal

import numpy as np

from hlokit.hlo.module import HloModule
from hlokit.judge.devices import devices_of
from hlokit.text.parser import parse_hlo
from hlokit.types.shape import Shape

_FILE = "cases.jsonl.gz"


Kind = Literal["values", "refusal", "text"]
Status = Literal["passed", "failed", "not supported"]
STATUSES: tuple[Status, ...] = ("passed", "failed", "not supported")


@dataclass(frozen=True)
class ConformanceCase:
    """A program, its arguments and the arrays of its result.

    name    where the case is from: the test, or the recorded case of XLA's
    rules   labels of the rules that a wrong value would break
    text    the program as HLO text
    kind    "values": it runs; "refusal": the text breaks the rules, and has to be refused; "text": it is to be read,
            and printed as the same program
    """

    name: str
    rules: tuple[str, ...]
    text: str
    given: tuple[bytes, ...]
    results: tuple[bytes, ...]
    kind: Kind = "values"

    @cached_property
    def module(self) -> HloModule:
        return parse_hlo(self.text)

    @property
    def arguments(self) -> list[Any]:
        parameters, count = self.module.entry.parameters, devices_of(self.module)
        found = [_array(d, p.shape) for d, p in zip(self.given, parameters * count, strict=True)]
        if count == 1:
            return found
        return [found[k : k + len(parameters)] for k in range(0, len(found), len(parameters))]

    @property
    def expected(self) -> tuple[Any, ...]:
        """The arrays of the result."""
        shapes = list(self.module.entry.root.shape.leaves()) * devices_of(self.module)
        return tuple(map(_array, self.results, shapes))

    def to_json(self) -> str:
        record = {"id": self.name, "rules": self.rules, "hlo": self.text}
        if self.kind != "values":
            return json.dumps({**record, "kind": self.kind})
        arrays = {"in": self.given, "out": self.results}
        return json.dumps(record | {key: [b64encode(d).decode("ascii") for d in part] for key, part in arrays.items()})


def recorded(
    name: str, rules: Iterable[str], module: HloModule, arguments: Sequence[Any], results: Sequence[Any]
) -> ConformanceCase:
    """A case of arrays: those of each device in turn."""
    given, expected = (tuple([np.ascontiguousarray(a).tobytes() for a in part]) for part in (arguments, results))
    return ConformanceCase(name, tuple(rules), module.to_text(), given, expected)


def cases() -> list[ConformanceCase]:
    """All cases, in the order of the file."""
    return [_case(json.loads(line)) for line in suite_bytes().decode("utf-8").splitlines()]


def suite_bytes() -> bytes:
    """The text of the file."""
    return gzip.decompress((files("hlokit.judge.conform") / _FILE).read_bytes())


def _case(record: dict[str, Any]) -> ConformanceCase:
    given, results = (tuple([b64decode(d) for d in record.get(key, ())]) for key in ("in", "out"))
    kind = record.get("kind", "values")
    return ConformanceCase(record["id"], tuple(record["rules"]), record["hlo"], given, results, kind)


def _array(data: bytes, shape: Shape) -> np.ndarray[Any, Any]:
    return np.frombuffer(data, shape.dtype.numpy).reshape(shape.dimensions)
