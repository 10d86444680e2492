"""Control flow, calls, tuples, tokens, custom calls, and transfers to and from the host."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

from hlokit.hlo.instruction import Instruction
from hlokit.ops.communication import Infeed, Outfeed, Recv, RecvDone, Send
from hlokit.ops.control_flow import Call
from hlokit.ops.custom import CustomCall
from hlokit.ops.structure import GetTupleElement
from hlokit.stablehlo.printer.elementwise import same
from hlokit.stablehlo.printer.site import PrintSite, Rule, Value
from hlokit.stablehlo.printer.spelling import (
    boolean_text,
    dictionary_text,
    list_text,
    results_text,
    string_text,
    symbol_text,
    types_text,
)  # fmt: skip
from hlokit.types.shape import Shape


def _parameter(site: PrintSite) -> Sequence[Value]:
    raise site.unsupported("a parameter that its computation does not list")


def _tuple(site: PrintSite) -> list[Value]:
    return [value for i in range(len(site.instruction.operands)) for value in site.states(i)]


def _get_tuple_element(site: PrintSite) -> Sequence[Value]:
    op = site.instruction.op
    assert isinstance(op, GetTupleElement)
    return element(site, op.index)


def element(site: PrintSite, index: int) -> Sequence[Value]:
    """The leaves of one element of the operand."""
    places = _places(site.instruction.operands[0].shape)
    return site.states(0)[places[index] : places[index + 1]]


@lru_cache(maxsize=64)
def _places(shape: Shape) -> list[int]:
    """The positions at which the leaves of each element begin; at the end, their number."""
    return list(accumulate((len(list(e.leaves())) for e in shape.elements), initial=0))


def _after_all(site: PrintSite) -> list[Value]:
    if not site.operands:
        return [site.short("stablehlo.create_token", [])]
    return [site.short("stablehlo.after_all", site.operands, types="result")]


def _barrier(site: PrintSite) -> list[Value]:
    """A barrier of the operand's leaves; nothing is left of a barrier of none."""
    return _ordered(site, site.operands)


def _ordered(site: PrintSite, values: Sequence[Value]) -> list[Value]:
    if not values:
        return []
    bound, found = site.into.bind([v.shape for v in values])
    listed = ", ".join(v.name for v in values)
    line = f"{bound}stablehlo.optimization_barrier{site.marks_text()} {listed} : {types_text(v.shape for v in values)}"
    site.into.line(line + site.location())
    return found


def _add_dependency(site: PrintSite) -> list[Value]:
    """A barrier of the value and the token."""
    return _ordered(site, site.operands)[: len(site.leaves)]


# -- calls


def _call(site: PrintSite) -> list[Value]:
    op = site.instruction.op
    extra = site.instruction.extra
    marks = extra.frontend_attributes if extra is not None else {}
    if isinstance(op, Call) and op.is_composite and "composite.name" in marks:
        return _composite(site, marks)
    return site.into.call(site.called[0], site.operands, site.location(), site.marks_text())


def _composite(site: PrintSite, marks: dict[str, str]) -> list[Value]:
    attributes = {"decomposition": site.into.symbols.function(site.called[0])}
    text = marks.get("composite.attributes", "")
    if text.strip("{} "):
        attributes["composite_attributes"] = checked_dictionary(site, text)
    if marks.get("composite.version", "").isdecimal():
        attributes["version"] = f"{int(marks['composite.version'])} : i32"
    bound, values = site.into.bind(site.leaves)
    operands = site.operands
    listed = f" {', '.join(o.name for o in operands)}" if operands else ""
    types = f"({types_text(o.shape for o in operands)}) -> {results_text(site.leaves)}"
    name = string_text(marks["composite.name"])
    site.into.line(
        f"{bound}stablehlo.composite {name}{listed} {dictionary_text(attributes)} : {types}{site.location()}"
    )
    return values


def checked_dictionary(site: PrintSite, text: str) -> str:
    """A dictionary attribute that stands in HLO as text."""
    from hlokit.errors import HlokitError
    from hlokit.stablehlo.attributes import AttributeReader
    from hlokit.stablehlo.lexer import END, MlirLexer

    try:
        lexer = MlirLexer(text)
        found = AttributeReader(lexer).attribute()
        if lexer.kind == END and isinstance(found, dict):
            return text.strip()
    except HlokitError:
        pass
    raise site.unsupported(f"{text[:60]!r} is not a dictionary attribute")


def _while(site: PrintSite) -> list[Value]:
    """`stablehlo.while(%iterArg = %0) : types cond {..} do {..}`."""
    into, state = site.into, site.operands
    if not state:
        return site.generic("stablehlo.while", [], [], regions=[site.branch(0, ()), site.branch(1, ())])
    arguments = [Value(into.fresh("iterArg"), v.shape) for v in state]
    bound, values = into.bind([v.shape for v in state])
    pairs = ", ".join(f"{a.name} = {v.name}" for a, v in zip(arguments, state, strict=True))
    marks = site.marks_text()
    types = types_text(v.shape for v in state)
    into.line(f"{bound}stablehlo.while({pairs}) : {types}{' attributes' + marks if marks else ''}")
    for opening, number in (("cond {", 0), ("} do {", 1)):
        into.line(opening)
        with into.indented():
            site.branch(number, arguments)()
    into.line("}" + site.location())
    return values


def _conditional(site: PrintSite) -> list[Value]:
    """`if` of a pred, `case` of a number; branches use their operands where they are."""
    (selector,) = site.parts(0)
    regions = [site.branch(i, site.parts(i + 1)) for i in range(len(site.called))]
    name = "stablehlo.if" if selector.shape.dtype.kind == "pred" else "stablehlo.case"
    return site.generic(name, [selector], regions=regions)


def _async_start(site: PrintSite) -> list[Value]:
    """The call itself; the state holds operands, results and contexts that nothing computes."""
    results = site.into.call(site.called[0], site.operands, site.location())
    contexts = [leaf for part in site.shape.elements[2:] for leaf in part.leaves()]
    return [*site.operands, *results, *(Value("", c) for c in contexts)]


def _async_done(site: PrintSite) -> Sequence[Value]:
    return element(site, 1)


def _copy_start(site: PrintSite) -> list[Value]:
    return [*site.operands, *site.operands, Value("", site.leaves[-1])]


def _copy_done(site: PrintSite) -> Sequence[Value]:
    return element(site, 0)


# -- custom calls

_API_VERSIONS = {
    "API_VERSION_UNSPECIFIED": 0,
    "API_VERSION_ORIGINAL": 1,
    "API_VERSION_STATUS_RETURNING": 2,
    "API_VERSION_STATUS_RETURNING_UNIFIED": 3,
    "API_VERSION_TYPED_FFI": 4,
}
_TYPED = 4
_UNSAID = (
    "window", "dim_labels", "feature_group_count", "batch_group_count", "operand_precision", "padding_type", "literal",
)  # fmt: skip
"""Attributes that StableHLO's custom calls lack."""


def _custom_call(site: PrintSite) -> list[Value]:
    op = site.instruction.op
    assert isinstance(op, CustomCall)
    for attribute in op.attributes:
        if attribute.name in _UNSAID and getattr(op, attribute.name) != attribute.default:
            raise site.unsupported(f"the attribute {attribute.text}")
    operands = [site.packed(i) for i in range(len(site.instruction.operands))]
    results = _results(site.shape)
    bound, values = site.into.bind(results)
    target = symbol_text(op.custom_call_target)
    attributes = dictionary_text(_custom_attributes(site, op, len(results)))
    types = f"({types_text(o.shape for o in operands)}) -> {results_text(results)}"
    listed = ", ".join(o.name for o in operands)
    site.into.line(f"{bound}stablehlo.custom_call {target}({listed}) {attributes} : {types}{site.location()}")
    return [leaf for value in values for leaf in site.unpack(value)]


def _results(shape: Shape) -> list[Shape]:
    """One for each element of a tuple of several or none, else the one shape as it is."""
    several = shape.is_tuple and len(shape.elements) != 1 and not any(e.is_tuple for e in shape.elements)
    return [s.logical for s in (shape.elements if several else (shape,))]


def _custom_attributes(site: PrintSite, op: CustomCall, count: int) -> dict[str, str]:
    version = _API_VERSIONS.get(op.api_version)
    if version is None:
        raise site.unsupported(f"the API version {op.api_version}")
    found = {"api_version": f"{version} : i32"}
    config = site.instruction.extra.backend_config if site.instruction.extra is not None else ""
    if config:
        found["backend_config"] = checked_dictionary(site, config) if version == _TYPED else string_text(config)
    if site.called:
        found["called_computations"] = list_text(map(site.into.symbols.function, site.called))
    if op.custom_call_has_side_effect:
        found["has_side_effect"] = "true"
    if op.operand_layout_constraints is not None:
        results = site.shape.elements if site.shape.is_tuple else (site.shape,)
        shapes = (*op.operand_layout_constraints, *results)
        if all(s.is_array or s.is_token for s in shapes) and count == len(results):
            found["operand_layouts"] = list_text(map(_layout, op.operand_layout_constraints))
            found["result_layouts"] = list_text(map(_layout, results))
            if any(s.layout is not None and s.layout.tiles for s in results):
                found["result_tilings"] = list_text(map(_tilings, results))
    if op.output_to_operand_aliasing:
        found["output_operand_aliases"] = list_text(
            f"#stablehlo.output_operand_alias<output_tuple_indices = {list_text(output)}, "
            f"operand_index = {number}, operand_tuple_indices = {list_text(inside)}>"
            for output, number, inside in op.output_to_operand_aliasing
        )
    return found | site.marks()


def _tilings(shape: Shape) -> str:
    tiles = shape.layout.tiles if shape.layout is not None else ()
    sizes = ([-(2**63) if n is None else n for n in tile] for tile in tiles)
    return list_text(f"dense<{list_text(tile)}> : tensor<{len(tile)}xindex>" for tile in sizes)


def _layout(shape: Shape) -> str:
    order = shape.layout_or_default.minor_to_major if shape.is_array else ()
    return f"dense<{list_text(order) if order else ''}> : tensor<{len(order)}xindex>"


# -- transfers


def _infeed(site: PrintSite) -> list[Value]:
    op = site.instruction.op
    assert isinstance(op, Infeed)
    properties = {"infeed_config": string_text(op.infeed_config)}
    orders = [s.layout_or_default.minor_to_major for s in site.leaves if s.is_array]
    properties["layout"] = list_text(map(list_text, orders))
    return site.generic("stablehlo.infeed", site.operands, properties=properties)


def _outfeed(site: PrintSite) -> list[Value]:
    op = site.instruction.op
    assert isinstance(op, Outfeed)
    properties = {"outfeed_config": string_text(op.outfeed_config)}
    return site.generic("stablehlo.outfeed", site.operands, properties=properties)


def _send(site: PrintSite) -> list[Value]:
    """The whole transfer: StableHLO's send is HLO's pair."""
    op = site.instruction.op
    assert isinstance(op, Send)
    values = site.operands
    (token,) = site.generic("stablehlo.send", values, [values[-1].shape], _channel(op, 2))
    return [*values[:-1], Value("", site.shape.elements[1]), token]


def _send_done(site: PrintSite) -> Sequence[Value]:
    return site.states(0)[-1:]


def _recv(site: PrintSite) -> list[Value]:
    """Printed at its done; here the token alone is kept."""
    nothing = [Value("", leaf) for leaf in site.leaves[:-1]]
    return [*nothing, site.operand()]


def _recv_done(site: PrintSite) -> list[Value]:
    op = site.instruction.op
    assert isinstance(op, RecvDone)
    start = site.instruction.operands[0]
    if not isinstance(start.op, Recv) or _something_between(start, site.instruction):
        raise site.unsupported("a transfer between the recv and its recv-done")
    return site.generic("stablehlo.recv", [site.states(0)[-1]], properties=_channel(op, 3))


def _something_between(start: Instruction, done: Instruction) -> bool:
    """Whether another device or the host must do something after the recv for its recv-done to come about."""
    assert start.parent is not None
    order = start.parent.post_order()
    between = order[order.index(start) + 1 : order.index(done)]
    return any(i.op.form == "communicate" and i.op.side_effect for i in between)


def _channel(op: Any, host: int) -> dict[str, str]:
    kind = host if op.is_host_transfer else 1
    return {
        "channel_handle": f"#stablehlo.channel_handle<handle = {op.channel_id or 0}, type = {kind}>",
        "is_host_transfer": boolean_text(op.is_host_transfer),
    }


RULES: dict[str, Rule] = {
    "add-dependency": _add_dependency,
    "after-all": _after_all,
    "async-done": _async_done,
    "async-start": _async_start,
    "async-update": same,
    "call": _call,
    "conditional": _conditional,
    "copy-done": _copy_done,
    "copy-start": _copy_start,
    "custom-call": _custom_call,
    "domain": same,
    "fusion": _call,
    "get-tuple-element": _get_tuple_element,
    "infeed": _infeed,
    "opt-barrier": _barrier,
    "outfeed": _outfeed,
    "parameter": _parameter,
    "recv": _recv,
    "recv-done": _recv_done,
    "send": _send,
    "send-done": _send_done,
    "tuple": _tuple,
    "while": _while,
}
