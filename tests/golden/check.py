"""Judges one golden case on one route: does the library do what XLA did?"""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.golden.cases import Array, Case, root_roles
from tests.golden.compare import compare_outputs
from tests.golden.engines import ENGINES
from tests.golden.player import Player, flatten

XLA_WRONG: dict[str, str] = {
    "reduce-1-0084": "REDUCE-9: init (0, 0) is no identity of this arg-max (it wins ties), and XLA never applied it: "
    "it drops a reduce over a dimension of size 1. The tag non_identity_init is missing.",
    "data_movement-1-0200": "COLLAPSE-4: dimension 1 of a scalar is outside [0, 0); XLA looks at no list of one entry.",
    "structure-1-0037": "BEY-24: dynamic-reshape takes scalar sizes; this mutant gives s32[1], which XLA's builder passes.",
}
"""Cases where the recorded value is no authority though no tag says so: id -> "rule: reason"."""

ROUTES = ("builder", "text")
PASSED, FAILED, IGNORED = "passed", "failed", "ignored"
SECONDS = 60.0


class Mismatch(Exception):
    """The library did something other than XLA did. The text is the cause."""


class CaseTimeout(BaseException):
    """A case ran too long. No Exception, so that no library code can catch it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one case on one route. `cause` is one line, empty if passed; `detail` a short traceback."""

    id: str
    family: str
    op: str
    kind: str
    route: str
    status: str
    cause: str = ""
    detail: str = ""


def check_case(
    case: Case, routes: tuple[str, ...] = ROUTES, engine: str = "reference", seconds: float = SECONDS
) -> list[Verdict]:
    """One verdict for each route that the case has, which fails if it takes longer. `engine`: see engines.py."""
    return [_judge(case, route, engine, seconds) for route in routes if _has_route(case, route)]


def _has_route(case: Case, route: str) -> bool:
    return route == "builder" or case.hlo is not None


def _judge(case: Case, route: str, engine: str, seconds: float) -> Verdict:
    """Runs the case. Wrong by the rules: Mismatch or HlokitError; any other exception is a bug in any case."""
    from hlokit import HlokitError

    def verdict(status: str, cause: str = "", detail: str = "") -> Verdict:
        return Verdict(case.id, case.family, case.op, case.kind, route, status, cause, detail)

    may_differ = not case.is_judged or case.id in XLA_WRONG or (case.kind == "reject" and case.stage == "compile")
    try:
        with time_limit(seconds):
            _check(case, route, engine)
    except (Mismatch, HlokitError) as error:
        name = "" if isinstance(error, Mismatch) else f"{type(error).__name__}: "
        return verdict(IGNORED if may_differ else FAILED, name + first_line(error), short_traceback(error))
    except CaseTimeout as error:
        return verdict(FAILED, f"takes more than {seconds:g} s", short_traceback(error))
    except Exception as error:
        return verdict(FAILED, f"{type(error).__name__}: {first_line(error)}", short_traceback(error))
    return verdict(IGNORED if may_differ else PASSED)


def _check(case: Case, route: str, engine: str) -> None:
    if case.kind == "reject":
        return _check_refused(case)
    if case.family == "collectives":
        return _check_replicas(case, _make_module(case, route), engine)
    _check_module(case, _make_module(case, route), engine)


def _make_module(case: Case, route: str) -> Any:
    import hlokit as hk

    return hk.parse(case.hlo) if route == "text" else Player(hk).build(case.program)


def _check_refused(case: Case) -> None:
    import hlokit as hk

    try:
        module = Player(hk).build(case.program)
        if case.stage == "crash":  # where XLA aborts, refusing at some time is enough
            hk.evaluate(module, *case.inputs)
    except hk.HlokitError:
        return
    raise Mismatch(f"accepted, XLA refuses: {case.message.splitlines()[0] if case.message else case.stage}")


def _check_module(case: Case, module: Any, engine: str) -> None:
    check_round_trip(module)
    check_program_shape(module, case)
    if case.kind == "ok":
        _check_outputs(case, ENGINES[engine](module, *case.inputs), case.outputs, case.inputs)


def _check_replicas(case: Case, module: Any, engine: str) -> None:
    check_round_trip(module)
    results = ENGINES[engine](module, *case.replica_inputs, replicas=len(case.replica_inputs))
    for result, outputs, inputs in zip(results, case.replica_outputs, case.replica_inputs, strict=True):
        _check_outputs(case, result, outputs, inputs)


def check_round_trip(module: Any) -> None:
    """parse(print(m)) prints the same bytes."""
    import hlokit as hk

    text = str(module)
    try:
        again = str(hk.parse(text))
    except hk.HlokitError as error:
        raise Mismatch(f"round trip: {type(error).__name__}: {first_line(error)}") from error
    if again != text:
        raise Mismatch(f"round trip: {_first_different_line(text, again)}")


def check_program_shape(module: Any, case: Case) -> None:
    """The result's shape is the recorded one, layouts aside."""
    import hlokit as hk

    assert case.program_shape is not None
    want = hk.parse_shape(case.program_shape.rpartition(" -> ")[2])
    got = module.entry.root.shape
    if got.logical is not want.logical:
        raise Mismatch(f"result shape: got {got.logical}, want {want.logical}")


def _check_outputs(case: Case, result: Any, outputs: tuple[Array, ...], inputs: tuple[Array, ...]) -> None:
    roles = root_roles(case.program) if case.op in ("Eigh", "SVD") else None
    difference = compare_outputs(flatten(result), outputs, case.tolerance, inputs, roles)
    if difference is not None:
        raise Mismatch(difference)


def _first_different_line(text: str, again: str) -> str:
    lines = zip([*text.splitlines(), "(end)"], [*again.splitlines(), "(end)"], strict=False)
    first, second = next((a, b) for a, b in lines if a != b)
    return f"{first.strip()!r} became {second.strip()!r}"


def first_line(error: BaseException) -> str:
    """The first line of an exception's text."""
    return (str(error).strip().splitlines() or [""])[0]


def short_traceback(error: BaseException) -> str:
    """The last three frames, one line each."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    return " > ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises CaseTimeout after that time. Only in a process's main thread (signals), elsewhere without effect."""
    previous: Callable[..., Any] | int | None
    try:
        previous = signal.signal(signal.SIGALRM, _raise_timeout)
    except (ValueError, AttributeError):  # no main thread, or no SIGALRM (Windows)
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def _raise_timeout(*_: object) -> None:
    raise CaseTimeout
