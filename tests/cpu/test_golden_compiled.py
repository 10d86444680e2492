"""Machine code does what XLA did and, strict, what the reference does: the bundled golden cases and whole programs.

The full set: python -m tests.golden.run --golden DIR --engine compiled (compiled-1, strict, strict-1).
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

import hlokit as hk
from hlokit.judge.closeness.equality import differs, same_bytes
from tests.golden.cases import Case, read_cases
from tests.golden.check import FAILED, check_case
from tests.golden.programs import BUNDLED, check_program, program_names, read_program
from tests.golden.sample import SAMPLE

BENCH = sorted((Path(__file__).parents[1] / "data" / "bench").glob("*.hlo.gz"))
CASES = [case for case in read_cases(SAMPLE) if case.kind == "ok" and case.hlo and case.family != "collectives"]


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The cache is no part of what is tested, and stays as it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HLOKIT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.op}-{case.id}")
def test_sample(case: Case) -> None:
    failures = [verdict for verdict in check_case(case, ("text",), "compiled") if verdict.status == FAILED]
    assert not failures, "\n".join(f"{failure.cause}\n    {failure.detail}" for failure in failures)
    assert case.hlo is not None
    module = hk.parse(case.hlo)
    for strict in (False, True):
        one, two = (hk.compile(module, strict=strict, threads=n)(*case.inputs) for n in (1, 2))
        assert same_bytes(one, two)
        if strict:
            assert differs(one, hk.evaluate(module, *case.inputs)) is None


@pytest.mark.parametrize("name", program_names(BUNDLED))
def test_program(name: str) -> None:
    program = read_program(BUNDLED, name)
    check_program(program, "compiled")
    module = hk.parse(program.hlo)
    assert same_bytes(*(hk.compile(module, threads=n)(*program.inputs) for n in (1, 2)))


@pytest.mark.parametrize("name", program_names(BUNDLED))
def test_strict_program(name: str) -> None:
    program = read_program(BUNDLED, name)
    module = hk.parse(program.hlo)
    assert differs(hk.compile(module, strict=True)(*program.inputs), hk.evaluate(module, *program.inputs)) is None


@pytest.mark.parametrize("path", BENCH, ids=lambda path: path.name.partition(".")[0])
def test_bench_program_compiles(path: Path) -> None:
    hk.compile(hk.parse(gzip.decompress(path.read_bytes())))


@pytest.mark.slow
@pytest.mark.parametrize("path", BENCH, ids=lambda path: path.name.partition(".")[0])
def test_bench_program_runs(path: Path) -> None:
    """The same bytes on one and two threads; what comes out is finite where what goes in is small."""
    from hlokit.judge.fuzz.values import arguments

    module = hk.parse(gzip.decompress(path.read_bytes()))
    inputs = arguments(module, 0, wild=0.0)
    results = [hk.compile(module, threads=n, donate=())(*inputs) for n in (1, 2)]
    assert same_bytes(*results)
