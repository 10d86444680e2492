"""Depthwise convolution: output features with inputs of their own lie side by side in vectors."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from hlokit.cpu.kernels.contraction.convolution_plan import Laid, Panel, Plan
from hlokit.cpu.kernels.contraction.elements import broadcast, constant_mask, lane_numbers, read, store
from hlokit.cpu.kernels.contraction.scalar_convolution import affine
from hlokit.cpu.kernels.contraction.squares import shuffled, transposed
from hlokit.cpu.kernels.contraction.windows import WindowSpace
from hlokit.cpu.llvm import Function, Module, scalar_type, vector


def suits(s: WindowSpace, lanes: int) -> bool:
    """Whether vectors along the groups are better than vectors along a group's output features."""
    return s.group.size >= lanes // 2 and 4 * s.output.size <= lanes and (_lies_in_lines(s, lanes) or _can_turn(s))


def _lies_in_lines(s: WindowSpace, lanes: int) -> bool:
    return s.group.lhs == 1 and lanes % s.output.size == 0


def _can_turn(s: WindowSpace) -> bool:
    return s.output.size == 1


@contextmanager
def each(f: Function, count: int) -> Generator[str]:
    """Numbers below `count`: a loop, unless there is but one."""
    if count == 1:
        yield "0"
        return
    with f.loop("0", str(count)) as loop:
        yield loop.index


def also_inside(f: Function, laid: Laid, place: str, inside: str) -> str:
    """Whether `inside` holds and the axis has an element at the place."""
    if laid.is_inside:
        return inside
    here = f.let(f"icmp ult i64 {place}, {laid.axis.inputs}")
    return here if inside == "true" else f.let(f"and i1 {inside}, {here}")


def lay_out_features(
    f: Function, module: Module, plan: Plan, panel: Panel, base: str, patch: str, starts: Sequence[str], nth: str
) -> None:
    """What a chunk reads for the panel with this number: a vector of features for each place, zeros for padding."""
    s, lanes, scalar = plan.sliding, plan.lanes, scalar_type(plan.sliding.wide)
    numbers = [i for i, a in enumerate(plan.axes) if a.extent > 1 or a.axis.inputs > 1 or not a.axis.is_inside]
    width = panel.vectors * lanes
    in_lines = s.output.lhs == 1 and lanes % s.shared == 0
    channel = affine(f, panel.first // s.shared if in_lines else 0, [(nth, width // s.shared if in_lines else 0)])
    turned: int | None = None
    if not in_lines:
        channel = affine(f, panel.first * s.output.lhs, [(nth, width * s.output.lhs)])
        lines = [
            i for i in numbers if plan.axes[i].axis.lhs == 1 and plan.axes[i].step == 1 and plan.axes[i].extent > 1
        ]
        turned = lines[-1] if lines else None
        numbers = [i for i in numbers if i != turned]

    def valid(v: int) -> int:
        return panel.valid if v == panel.vectors - 1 else lanes

    def put(value: str, target: str) -> None:
        store(f, scalar, lanes, value, f.let(f"getelementptr {scalar}, ptr {patch}, i64 {target}"))

    def place(source: str, target: str, inside: str) -> None:
        for v in range(panel.vectors):
            to = affine(f, v * lanes, [(target, 1)])
            if in_lines:
                here = affine(f, v * lanes // s.shared, [(source, 1)])
                put(in_line(here, inside, -(-valid(v) // s.shared)), to)
            else:
                one_by_one(affine(f, v * lanes * s.output.lhs, [(source, 1)]), to, inside, valid(v))

    def in_line(source: str, inside: str, count: int) -> str:
        mask = broadcast(f, inside, "i1", lanes)
        if count < lanes:
            mask = f.let(f"and <{lanes} x i1> {mask}, {constant_mask(count, lanes)}")
        value = read(f, module, s.operand, base, source, lanes, scalar, mask)[0]
        if s.shared == 1:
            return value
        return shuffled(f, vector(scalar, lanes), [value, "poison"], [i // s.shared for i in range(lanes)])

    def one_by_one(source: str, target: str, inside: str, count: int) -> None:
        put("zeroinitializer", target)
        with f.when(inside), f.loop("0", str(count)) as loop:
            number = affine(f, 0, [(source, 1), (loop.index, s.output.lhs)])
            value = read(f, module, s.operand, base, number, 1, scalar)[0]
            at = affine(f, 0, [(target, 1), (loop.index, 1)])
            store(f, scalar, 1, value, f.let(f"getelementptr {scalar}, ptr {patch}, i64 {at}"))

    def line(number: int, source: str, target: str, inside: str) -> None:
        """Squares of lanes places and lanes features, read along the places and turned."""
        laid = plan.axes[number]
        bound = broadcast(f, f.let(f"select i1 {inside}, i32 {laid.axis.inputs}, i32 0"), "i32", lanes)
        with f.loop("0", str(laid.extent), lanes) as loop:
            at = affine(f, 0, [(starts[number], 1), (loop.index, 1)])
            short = broadcast(f, f.let(f"trunc i64 {at} to i32"), "i32", lanes)
            places = f.let(f"add <{lanes} x i32> {short}, {lane_numbers(lanes, 'i32')}")
            mask = f.let(f"icmp ult <{lanes} x i32> {places}, {bound}")
            full = panel.vectors if panel.valid == lanes else panel.vectors - 1

            def square(v: str, count: int) -> None:
                rows = ["zeroinitializer"] * lanes
                for i in range(count):
                    row = affine(f, i * s.output.lhs, [(v, lanes * s.output.lhs), (source, 1), (at, 1)])
                    rows[i] = read(f, module, s.operand, base, row, lanes, scalar, mask)[0]
                for i, value in enumerate(transposed(f, rows, scalar)):
                    put(value, affine(f, i * laid.place, [(v, lanes), (target, 1), (loop.index, laid.place)]))

            if full:
                with each(f, full) as nth_vector:
                    square(nth_vector, lanes)
            if full < panel.vectors:
                square(str(full), panel.valid)

    def over(axes: Sequence[int], source: str, target: str, inside: str) -> None:
        if not axes:
            if turned is not None:
                line(turned, source, target, inside)
            else:
                place(source, target, inside)
            return
        number, laid = axes[0], plan.axes[axes[0]]
        with each(f, laid.extent) as k:
            at = affine(f, 0, [(starts[number], 1), (k, laid.step)])
            nested = affine(f, 0, [(source, 1), (at, laid.axis.lhs)])
            here = also_inside(f, laid, at, inside)
            over(axes[1:], nested, affine(f, 0, [(target, 1), (k, laid.place)]), here)

    over(numbers, channel, "0", "true")
