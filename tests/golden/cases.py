"""The golden cases as data: one JSON object per line, arrays in base64."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Program = dict[str, Any]  # {"params": [...], "steps": [...], "root": "%s0"}

NUMPY_TYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(numpy_type)
    for name, numpy_type in {
        "pred": np.bool_,
        "s2": ml_dtypes.int2,
        "s4": ml_dtypes.int4,
        "s8": np.int8,
        "s16": np.int16,
        "s32": np.int32,
        "s64": np.int64,
        "u2": ml_dtypes.uint2,
        "u4": ml_dtypes.uint4,
        "u8": np.uint8,
        "u16": np.uint16,
        "u32": np.uint32,
        "u64": np.uint64,
        "f4e2m1fn": ml_dtypes.float4_e2m1fn,
        "f8e3m4": ml_dtypes.float8_e3m4,
        "f8e4m3": ml_dtypes.float8_e4m3,
        "f8e4m3b11fnuz": ml_dtypes.float8_e4m3b11fnuz,
        "f8e4m3fn": ml_dtypes.float8_e4m3fn,
        "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
        "f8e5m2": ml_dtypes.float8_e5m2,
        "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
        "f8e8m0fnu": ml_dtypes.float8_e8m0fnu,
        "f16": np.float16,
        "bf16": ml_dtypes.bfloat16,
        "f32": np.float32,
        "f64": np.float64,
        "c64": np.complex64,
        "c128": np.complex128,
    }.items()
}
NAMES: dict[np.dtype[Any], str] = {numpy_type: name for name, numpy_type in NUMPY_TYPES.items()}
_SUB_BYTE_INTEGERS = {"s2": np.int8, "s4": np.int8, "u2": np.uint8, "u4": np.uint8}

UNJUDGED_TAGS = frozenset({"implementation_defined", "differs_in_newer_xla", "xla_defect"})


@dataclass(frozen=True, slots=True)
class Case:
    """One recorded operation case. `program_shape` is absent for a refused one, `hlo` also when it was too long."""

    id: str
    family: str
    op: str
    kind: str  # ok | reject | build_only
    tags: frozenset[str]
    program: Program
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...] = ()
    tolerance: tuple[dict[str, Any], ...] = ()
    program_shape: str | None = None
    hlo: str | None = None
    from_hlo_text: bool = False
    stage: str | None = None  # of a refused one: build | compile | crash
    message: str = ""
    replica_inputs: tuple[tuple[Array, ...], ...] = ()
    replica_outputs: tuple[tuple[Array, ...], ...] = ()
    record: dict[str, Any] = field(repr=False, default_factory=dict[str, Any])

    @property
    def is_judged(self) -> bool:
        """False if the semantics leave the result open or the recorded value is known to be no authority."""
        return not self.tags & UNJUDGED_TAGS


def decode_array(encoded: dict[str, Any]) -> Array:
    """The array of {"dtype", "shape", "data"}; data is base64 of little-endian row-major bytes."""
    name, shape = encoded["dtype"], tuple(encoded["shape"])
    numpy_type, data = NUMPY_TYPES[name], base64.b64decode(encoded["data"])
    if name in _SUB_BYTE_INTEGERS:
        return np.frombuffer(data, _SUB_BYTE_INTEGERS[name]).reshape(shape).astype(numpy_type)
    return np.frombuffer(data, numpy_type).reshape(shape).copy()


def encode_array(array: Array) -> dict[str, Any]:
    """The inverse of decode_array."""
    name = NAMES[array.dtype]
    stored = array.astype(_SUB_BYTE_INTEGERS[name]) if name in _SUB_BYTE_INTEGERS else array
    data = base64.b64encode(stored.tobytes()).decode("ascii")
    return {"dtype": name, "shape": list(array.shape), "data": data}


def decode_case(record: dict[str, Any]) -> Case:
    """The case that one line holds."""
    error = record.get("error") or {}
    return Case(
        id=record["id"],
        family=record["family"],
        op=record["op"],
        kind=record["kind"],
        tags=frozenset(record["tags"]),
        program=record["program"],
        inputs=_arrays(record["inputs"]),
        outputs=_arrays(record.get("outputs") or ()),
        tolerance=tuple(record.get("tolerance") or ()),
        program_shape=record.get("program_shape"),
        hlo=record.get("hlo"),
        from_hlo_text=bool(record.get("from_hlo_text")),
        stage=error.get("stage"),
        message=error.get("message", ""),
        replica_inputs=tuple(map(_arrays, record.get("replica_inputs") or ())),
        replica_outputs=tuple(map(_arrays, record.get("replica_outputs") or ())),
        record=record,
    )


def _arrays(encoded: Any) -> tuple[Array, ...]:
    return tuple(map(decode_array, encoded))


def read_cases(path: Path) -> Iterator[Case]:
    """The cases of one .jsonl or .jsonl.gz file, in order."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield decode_case(json.loads(line))


def golden_files(folder: Path, families: frozenset[str] = frozenset()) -> list[Path]:
    """The folder's .jsonl files, sorted; of the named families only, if any is named."""
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise FileNotFoundError(f"no golden cases (*.jsonl) in {folder}")
    unknown = families - {path.stem for path in files}
    if unknown:
        raise FileNotFoundError(f"no golden family {', '.join(sorted(unknown))} in {folder}")
    return [path for path in files if not families or path.stem in families]


def root_roles(program: Program) -> list[int]:
    """For each output of a factorisation's program, which result of the factorisation it is.

    The outputs are usually (%s0.0, %s0.1, ...), but a mutated case may repeat or drop one.
    """
    root = program["root"]
    step = program["steps"][int(root[2:].split(".")[0])] if root.startswith("%s") else {"op": ""}
    references = step["args"]["elements"] if step["op"] == "Tuple" else [root]
    return [int(reference.split(".")[1]) if "." in reference else -1 for reference in references]
