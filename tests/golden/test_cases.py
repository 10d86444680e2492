"""Reading and writing golden cases."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.golden.cases import NUMPY_TYPES, decode_array, decode_case, encode_array, golden_files, root_roles


@pytest.mark.parametrize("name", NUMPY_TYPES)
@pytest.mark.parametrize("shape", [(), (3,), (0, 2), (2, 3, 2)])
def test_encode_inverts_decode(name: str, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(1).integers(0, 2, shape).astype(NUMPY_TYPES[name])
    again = decode_array(encode_array(values))
    assert (again.dtype, again.shape, again.tobytes()) == (values.dtype, shape, values.tobytes())


def test_known_bytes() -> None:
    assert decode_array({"dtype": "s32", "shape": [2], "data": "AQAAAP////8="}).tolist() == [1, -1]
    assert decode_array({"dtype": "bf16", "shape": [], "data": "gD8="}).astype(np.float32) == 1.0
    assert decode_array({"dtype": "pred", "shape": [2], "data": "AAE="}).tolist() == [False, True]


@pytest.mark.parametrize(("name", "values"), [("s4", [-8, 7, -1]), ("u4", [15, 0, 8]), ("s2", [-2, 1, 0])])
def test_sub_byte_integers_take_a_byte_each(name: str, values: list[int]) -> None:
    encoded = encode_array(np.array(values, np.int8).astype(NUMPY_TYPES[name]))
    assert len(encoded["data"]) == 4
    assert decode_array(encoded).astype(np.int8).tolist() == values


def test_case_of_a_refusal() -> None:
    record = {
        "id": "x-1", "family": "x", "op": "Abs", "kind": "reject", "origin": "invalid", "tags": [], "inputs": [],
        "program": {"params": [], "steps": [], "root": "%p0"}, "error": {"stage": "build", "message": "no"},
    }  # fmt: skip
    case = decode_case(record)
    assert (case.stage, case.message, case.outputs, case.hlo, case.is_judged) == ("build", "no", (), None, True)
    assert not decode_case(record | {"tags": ["special_values", "xla_defect"]}).is_judged


def test_missing_folder_and_family(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no golden cases"):
        golden_files(tmp_path)
    (tmp_path / "dot.jsonl").touch()
    assert golden_files(tmp_path) == [tmp_path / "dot.jsonl"]
    with pytest.raises(FileNotFoundError, match="no golden family rng"):
        golden_files(tmp_path, frozenset({"dot", "rng"}))


def test_roles_follow_the_root() -> None:
    factors = {"op": "SVD", "args": {"a": "%p0"}}
    both = {"op": "Tuple", "args": {"elements": ["%s0.2", "%s0.0"]}}
    assert root_roles({"params": [], "steps": [factors, both], "root": "%s1"}) == [2, 0]
    assert root_roles({"params": [], "steps": [factors], "root": "%s0.1"}) == [1]
