"""Random programs of JAX, a few of each sort (the long version is a program: python -m tests.jax.random.run)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("jax")

from tests.jax.pjrt.harness import python
from tests.jax.random.compare import Kind, Results, difference, judged
from tests.jax.random.operations import KINDS
from tests.jax.random.program import NDArray
from tests.jax.random.run import kinds_in, main, summary


def command(*arguments: str, hash_seed: str = "random") -> str:
    """The output of the command with no finding, in a process with the plugin."""
    done = python("-m", "tests.jax.random.run", *arguments, PYTHONHASHSEED=hash_seed)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_some() -> None:
    """An operation of each kind, and as many compositions."""
    count = str(len(KINDS))
    output = command("--count", count, "--seed", "100", "--elements", "20000", "--verbose")
    assert f"{count} compositions, {count} operations, 0 findings" in output
    assert "# composition 100\n# operation 100\n# composition 101\n" in output


FAULT = """
import sys
from hlokit.interop.pjrt.running import Interpreted
from tests.jax.random.run import main

right = Interpreted.__call__

def wrong(self, arguments):
    [results] = right(self, arguments)
    last = results[-1].copy()
    last.flat[-1] = 77 if last.dtype != bool else not last.flat[-1]
    return [[*results[:-1], last]]

Interpreted.__call__ = wrong
sys.exit(main(sys.argv[1:]))
"""
"""A process in which the platform hlokit changes the last element of each program's last result."""


def test_a_fault_is_found() -> None:
    done = python("-c", FAULT, "--count", "2", "--seed", "101", "--elements", "20000", HLOKIT_BACKEND="interpreter")
    assert done.returncode == 1, done.stderr
    for program in ("composition 101", "composition 102", "operation 101", "operation 102"):
        assert f"{program}: hlokit differs from XLA and from the reference: result " in done.stdout
    assert "2 compositions, 2 operations, 4 findings" in done.stdout


def test_a_seed_is_the_same_program_whatever_the_hash_seed() -> None:
    first, second = (command("--show", "5", "--elements", "20000", hash_seed=seed) for seed in ("1", "2"))
    assert first == second
    assert (
        "// composition 5\n// v" in first and "// operation 5\n" in first and first.count("func.func public @main") == 2
    )


# -- what counts as a difference

NUMBERS = np.array([1, -2, np.nan, 0], np.float32)


@pytest.mark.parametrize(
    ("ours", "tolerance", "found"),
    [
        (NUMBERS, None, None),
        (NUMBERS * np.array([1, 1, 1, -1], np.float32), None, None),
        (NUMBERS + np.float32(1e-6), None, "result 0 (float32[4]) at [0]: 1.0000009536743164, not 1.0; 3 of 4 differ"),
        (NUMBERS + np.float32(1e-6), 1, None),
        (NUMBERS + np.float32(1e-5), 1, "by up to 42 epsilons, of 5 allowed"),
        (np.nan_to_num(NUMBERS), 1, "at [2]: 0.0, not nan; 1 of 4 differ"),
        (NUMBERS.astype(np.float64), 1, "result 0 (float64[4]) should be float32[4]"),
        (NUMBERS[:3], 1, "result 0 (float32[3]) should be float32[4]"),
    ],
)
def test_differences(ours: NDArray, tolerance: float | None, found: str | None) -> None:
    told = difference([ours], [NUMBERS], tolerance)
    assert told is None if found is None else found in str(told)


def test_integers_have_no_tolerance() -> None:
    ours, theirs = np.array([[1, 2], [3, 5]]), np.array([[1, 2], [3, 4]])
    assert (
        difference([theirs, ours], [theirs, theirs], 100) == "result 1 (int64[2, 2]) at [1, 1]: 5, not 4; 1 of 4 differ"
    )


@pytest.mark.parametrize(
    ("dtype", "epsilon"),
    [(ml_dtypes.bfloat16, 2**-7), (np.float16, 2**-10), (np.complex64, 2**-23), (np.float64, 2**-52)],
)
def test_tolerances_are_of_the_type_and_the_largest_element(dtype: Any, epsilon: float) -> None:
    theirs, near, far = (np.array([512 * epsilon * factor, 512], dtype) for factor in (0, 8, 16))
    assert difference([near], [theirs], 5) is None
    assert difference([far], [theirs], 5)


RIGHT, WRONG, WORSE = ([np.array([number])] for number in (1, 2, 3))


@pytest.mark.parametrize(
    ("ours", "theirs", "reference", "kind", "text"),
    [
        (RIGHT, RIGHT, WRONG, Kind.AGREE, ""),
        (
            RIGHT,
            WRONG,
            RIGHT,
            Kind.XLA_DIFFERS,
            "XLA differs from hlokit and from the reference: result 0 (int64[1]) at [0]: 2, not 1",
        ),
        (
            WRONG,
            RIGHT,
            RIGHT,
            Kind.FINDING,
            "hlokit differs from XLA and from the reference: result 0 (int64[1]) at [0]: 2, not 1",
        ),
        (WRONG, WORSE, RIGHT, Kind.FINDING, "all three differ: hlokit from XLA: result 0 (int64[1]) at [0]: 2, not 3"),
        (WRONG, RIGHT, "is not asked", Kind.FINDING, "hlokit and XLA differ: "),
        ("no", RIGHT, RIGHT, Kind.FINDING, "hlokit fails: no"),
        (RIGHT, "no", RIGHT, Kind.XLA_FAILS, "XLA fails: no"),
        ("no", "nor", RIGHT, Kind.BOTH_FAIL, "hlokit fails: no; XLA fails: nor"),
    ],
)
def test_outcomes(ours: Results, theirs: Results, reference: Results, kind: Kind, text: str) -> None:
    outcome = judged(ours, theirs, lambda: reference, None)
    assert outcome.kind is kind and outcome.found.startswith(text)


def test_a_reference_may_be_between_both() -> None:
    low, middle, high = ([np.array(1 + epsilons * 2.0**-23, np.float32)] for epsilons in (0, 5, 10))
    outcome = judged(low, high, lambda: middle, 2)
    assert outcome.kind is Kind.FINDING and outcome.found.endswith("the reference is between them")


# -- the command's words


def test_summary() -> None:
    outcomes = Counter({Kind.AGREE: 5, Kind.FINDING: 1, Kind.XLA_FAILS: 2})
    assert summary(Counter(composition=4, operation=4), outcomes, 1.25) == (
        "4 compositions, 4 operations, 1 findings, 0 in which XLA differs from both, 2 errors of XLA alone, "
        "0 errors of both, 1.2 s"
    )


def test_kinds_have_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert kinds_in("dot,conv") == ("dot", "conv")
    with pytest.raises(SystemExit):
        main(["--kinds", "dot,sums"])
    assert "sums is none of dot, conv, fft, linalg, sort, window, gather" in capsys.readouterr().err
