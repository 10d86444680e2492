"""Index set splitting: an axis is divided into pieces with separate code, which needs fewer tests."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from itertools import pairwise

from hlokit.cpu.emit.loops import chunk_loop, vector_loop, vector_steps
from hlokit.cpu.emit.scope import Body, Emission, Scope
from hlokit.cpu.llvm import Value
from hlokit.cpu.loops import segments
from hlokit.cpu.loops.expr import LoopAxis
from hlokit.cpu.loops.nest import Span

_ANY: Span = (0, 0)
"""The span of steps of which nothing is known."""


@contextmanager
def _known(emission: Emission, axis: LoopAxis, span: Span) -> Generator[None]:
    """A context in which code is for these steps of the axis; where the span is empty, for any."""
    saved = emission.stores, emission.known
    emission.known = {**emission.known, axis: span}
    known = {a: s for a, s in emission.known.items() if s[0] < s[1]}
    stores = emission.loops.stores
    emission.stores = segments.within(stores, known, emission.within) if known else stores
    yield
    emission.stores, emission.known = saved


# -- an axis that goes by vectors


def whole(emission: Emission, scope: Scope, axis: LoopAxis, carries: Sequence[Value], body: Body) -> None:
    """All steps of the vector axis, in pieces where it has any; then nothing is carried."""
    loops = emission.loops
    for span in _spans(emission, axis):
        steps = vector_steps(loops, axis, span or (0, axis.extent), whole=True)
        if span is None:
            vector_loop(scope, steps, carries, body)
            continue
        with _known(emission, axis, span if span in loops.pieces[axis] else _ANY):
            vector_loop(scope, steps, [], body)


def chunk(emission: Emission, scope: Scope, axis: LoopAxis, low: Value, high: Value, body: Body) -> None:
    """The steps of the vector axis from low to high, in pieces where it has any."""
    loops = emission.loops
    for span in _spans(emission, axis):
        steps = vector_steps(loops, axis, span or (0, axis.extent), whole=False)
        if span is None:
            chunk_loop(scope, steps, low, high, body)
            continue
        with _known(emission, axis, span if span in loops.pieces[axis] else _ANY):
            chunk_loop(scope, steps, low, high, body)


def _spans(emission: Emission, axis: LoopAxis) -> list[Span | None]:
    """The axis's pieces and what lies between them; None alone: there are none."""
    spans = emission.loops.pieces.get(axis, ())
    if not spans:
        return [None]
    found: list[Span | None] = []
    place = 0
    for first, last in [*spans, (axis.extent, axis.extent)]:
        found += [span for span in ((place, first), (first, last)) if span[0] < span[1]]
        place = last
    return found


# -- an axis that goes one by one


def at_step(emission: Emission, scope: Scope, axis: LoopAxis, write: Callable[[Scope], None]) -> None:
    """Writes what is at a step of an axis that goes one by one: by the piece that the step is in."""
    own = emission.loops.pieces[axis]
    if own[0] == (0, axis.extent):
        with _known(emission, axis, own[0]):
            write(scope)
        return
    index, fn = scope.of_axis(axis).axes[axis], emission.fn
    done, rest = fn.new_block("done"), fn.new_block("piece")

    def part(span: Span) -> None:
        with _known(emission, axis, span):
            write(scope.beside())
        with scope.region:
            fn.jump(done)

    def among(spans: Sequence[Span]) -> None:
        """The step is in one of the spans; found by halves."""
        if len(spans) == 1:
            if spans[0] in own:
                part(spans[0])
            else:
                with scope.region:
                    fn.jump(rest)
            return
        middle = len(spans) // 2
        with scope.region:
            before, after = fn.new_block("piece"), fn.new_block("piece")
            fn.branch(index < spans[middle][0], before, after)
        for block, half in ((before, spans[:middle]), (after, spans[middle:])):
            with scope.region:
                fn.start(block)
            among(half)

    if len(own) == 1:  # the usual case: one test
        first, last = own[0]
        with scope.region:
            inside = fn.new_block("piece")
            fn.branch((index.wrapping() - first if first else index).compare("ult", last - first), inside, rest)
            fn.start(inside)
        part(own[0])
    else:
        among(list(pairwise(sorted({0, axis.extent, *(place for span in own for place in span)}))))
    if sum(last - first for first, last in own) < axis.extent:
        with scope.region:
            fn.start(rest)
        part(_ANY)
    with scope.region:
        fn.start(done)
