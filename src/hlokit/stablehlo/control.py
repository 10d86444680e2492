"""StableHLO's control flow, calls, tuples, tokens, custom calls, and transfers to and from the host."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hlokit.builder import communication, control
from hlokit.builder.core import XlaOp
from hlokit.errors import ArgumentError
from hlokit.hlo.computation import Computation
from hlokit.ops.control_flow import Call, Conditional, While
from hlokit.ops.custom import BUFFER_TARGETS, CustomCall
from hlokit.ops.structure import GetTupleElement, OptBarrier, Tuple
from hlokit.stablehlo import checks, chlo, collectives, dynamic, manual
from hlokit.stablehlo.movement import constant
from hlokit.stablehlo.shardings import placements, written_sharding
from hlokit.stablehlo.site import Rule, Site
from hlokit.stablehlo.tree import Block, DialectAttribute, Dictionary, Symbol
from hlokit.types import dtype as dtypes
from hlokit.types.layout import Layout
from hlokit.types.shape import Shape
from hlokit.types.sharding import Sharding

_API_VERSIONS = (
    "API_VERSION_UNSPECIFIED",
    "API_VERSION_ORIGINAL",
    "API_VERSION_STATUS_RETURNING",
    "API_VERSION_STATUS_RETURNING_UNIFIED",
    "API_VERSION_TYPED_FFI",
)
_COLLECTIVES = (
    "all_gather", "all_reduce", "all_slice", "all_to_all", "collective_permute", "reduce_scatter",
    "replicated_to_unreduced", "sharded_to_unreduced",
)  # fmt: skip
"""Shardy's operations that share values out otherwise; the values, which are whole, they leave as they are."""
_BARRIERS = {
    "NONE": (manual.BARRIER_FROM, manual.BARRIER_TO),
    "FORWARD": (manual.BARRIER_TO,),
    "BACKWARD": (manual.BARRIER_FROM,),
    "BOTH": (),
}
"""The custom calls that a propagation barrier is, by the direction that it allows, which artifacts number in this
order."""
_CHANNELS = {1: "device_to_device", 2: "device_to_host", 3: "host_to_device"}


def _while(site: Site) -> list[XlaOp]:
    """The state is a tuple: the arguments, then what the regions use of the outside."""
    condition, body = site.region(0), site.region(1)
    count = len(site.operands)
    captured = site.scope.captures([condition, body], site.operation.start)
    shapes = [operand.shape for operand in site.operands]
    state = site.emit(Tuple(), *site.operands, *captured.values())
    test, _ = site.scope.tupled(condition, shapes, captured, "condition", site)
    step, elements = site.scope.tupled(body, shapes, captured, "body", site)
    tests = test.results(condition, [dtypes.pred[()]], site.operation.start)
    after = step.results(body, shapes, site.operation.start)
    called = (
        test.builder.build_computation(tests[0]),
        step.builder.build_computation([*after, *elements[count:]]),
    )
    result = site.emit(While(), state, called=called)
    return [site.emit(GetTupleElement(i), result) for i in range(count)]


def _case(site: Site) -> list[XlaOp]:
    (index,) = site.exactly(1)
    return _branches(site, index, [site.region(i) for i in range(max(1, len(site.operation.regions)))])


def _if(site: Site) -> list[XlaOp]:
    (predicate,) = site.exactly(1)
    return _branches(site, predicate, [site.region(0), site.region(1)])


def _branches(site: Site, selector: XlaOp, blocks: list[Block]) -> list[XlaOp]:
    """Each branch takes what it uses of the outside as one tuple."""
    operands: list[XlaOp] = []
    called: list[Any] = []
    count = 0
    for number, block in enumerate(blocks):
        captured = site.scope.captures([block], site.operation.start)
        scope, _ = site.scope.tupled(block, [], captured, f"branch_{number}", site)
        results = scope.results(block, None, site.operation.start)
        count = len(results)
        operands.append(site.emit(Tuple(), *captured.values()))
        called.append(scope.builder.build_computation(results[0] if count == 1 else results))
    return site.unpacked(site.emit(Conditional(), selector, *operands, called=called), count)


def _call(site: Site) -> list[XlaOp]:
    name = site.symbol("callee")
    inlined = site.scope.lowering.inlined(name)
    if inlined is not None:
        return site.scope.body(inlined, site)
    computation = _function(site, name)
    count = len(site.scope.lowering.program.functions[name].results)
    return site.unpacked(site.emit(Call(False), *site.operands, called=(computation,)), count)


def _function(site: Site, name: str) -> Computation:
    """A function for the shapes of the operands, and for what is known of the sizes among them."""
    scope, shapes = site.scope, [o.shape for o in site.operands]
    return scope.lowering.function(name, shapes, site.operation.start, scope.sizes(site.operands))


def _composite(site: Site) -> list[XlaOp]:
    """A call of its decomposition, which says what it is called; that of `chlo.top_k` is topk, as in XLA."""
    words = [w for w in site.operation.words if isinstance(w, str)]
    name = site.string("name", default=words[0] if words else None)
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[\w$-]+)+", name, re.ASCII):
        raise site.error(f"{site.name}: {name[:60]!r} is not a name with a namespace, as my.op is")
    target = site.symbol("decomposition")
    attributes = site.get("composite_attributes", default=None)
    version = site.integer("version", default=0)
    if name == "chlo.top_k" and version == 1:  # its decomposition sorts whole lines
        own = replace(site.operation, name=name, attributes=dict(attributes or {}), words=[])
        return _listed(chlo.RULES["top_k"](Site(site.scope, own, site.operands)))
    computation = _function(site, target)
    text = attributes.text if isinstance(attributes, Dictionary) else "{}"
    count = len(site.scope.lowering.program.functions[target].results)
    result = control.composite_call(site.builder, computation, site.operands, name, text, version)
    return site.unpacked(result, count)


def _custom_call(site: Site) -> list[XlaOp]:
    """The target's name decides: what hlokit has an operation for becomes that, anything else a custom-call."""
    target = site.get("call_target_name", default=next((w for w in site.operation.words if isinstance(w, Symbol)), ""))
    target = target.name if isinstance(target, Symbol) else str(target)
    if target == "LayoutConstraint":
        return _layout_constraint(site)
    if target == "annotate_device_placement":
        return site.exactly(1)
    if target in manual.CUSTOM_CALLS:
        return _listed(manual.CUSTOM_CALLS[target](site))
    if target == "shape_assertion" and _holds(site):
        return []
    if target in checks.CUSTOM_CALLS:
        return _listed(checks.CUSTOM_CALLS[target](site))
    if target in collectives.CUSTOM_CALLS:
        return _listed(collectives.CUSTOM_CALLS[target](site))
    if target in dynamic.CUSTOM_CALLS:
        return _listed(dynamic.CUSTOM_CALLS[target](site))
    if target.startswith(("mhlo.", "chlo.", "stablehlo.")):
        found = _as_operation(site, target)
        if found is not None:
            return found
    return _custom(site, target)


def _layout_constraint(site: Site) -> list[XlaOp]:
    """The value itself: layouts are not part of values. That it is wanted in another one is noted."""
    (value,) = site.exactly(1)
    (wanted,) = _laid_out(site, [value.shape.logical], "result_layouts")
    if wanted.is_array and wanted.layout is not None:
        site.scope.lowering.ask_for_layout("a value", value.shape, str(wanted.layout))
    return [value]


def _holds(site: Site) -> bool:
    """The assertion is a constant and true; raises ArgumentError if it is false."""
    value = site.constant(0)
    if value is not None and not value.all():
        numbers = [site.constant(i) for i in range(1, len(site.operands))]
        message = site.string("error_message", default="the assertion about shapes does not hold")
        for i, number in enumerate(numbers):
            message = message.replace(f"{{{i}}}", "?" if number is None else str(number))
        raise ArgumentError(f"{site.where}: {message}")
    return value is not None


def _as_operation(site: Site, target: str) -> list[XlaOp] | None:
    """An operation of a later version that is written as a custom call, its attributes in mhlo.attributes."""
    from hlokit.stablehlo.mapping import rule_of

    rule = rule_of(target)
    if rule is None or rule is _custom_call:
        return None
    inner = site.get("mhlo.attributes", default={})
    if isinstance(inner, dict):
        site.operation.attributes.update(inner)  # pyright: ignore[reportUnknownArgumentType]
    return _listed(rule(site))


def _listed(result: XlaOp | Sequence[XlaOp]) -> list[XlaOp]:
    return [result] if isinstance(result, XlaOp) else list(result)


def _custom(site: Site, target: str) -> list[XlaOp]:
    shapes, site.operands = dynamic.refined(site)
    results = _tiled(site, _laid_out(site, shapes, "result_layouts"))
    version = _api_version(site, target)
    if not 0 <= version < len(_API_VERSIONS):
        raise site.error(f"{site.name}: there is no api_version {version}")
    shape = results[0] if len(results) == 1 else Shape.tuple(results)
    if any(r.is_unbounded for r in results):
        raise site.unsupported(f"the sizes of its result {shape} are not known")
    operands = [operand.shape for operand in site.operands]
    if not site.has("indices_of_shape_operands"):
        _check_both_laid_out(site, len(operands), len(results))
    constraints = tuple(_laid_out(site, operands, "operand_layouts")) if site.has("operand_layouts") else None
    fields: dict[str, Any] = {
        "custom_call_target": target,
        "custom_call_has_side_effect": site.boolean("has_side_effect", default=False),
        "api_version": _API_VERSIONS[version],
        "operand_layout_constraints": constraints,
        "output_to_operand_aliasing": tuple(_aliases(site) or _implied_aliases(site, target)),
        "output_shape": shape,
    }
    called: list[Any] = []
    for symbol in site.listed("called_computations"):
        if not isinstance(symbol, Symbol):
            raise site.error(f"{site.name}: called_computations are @symbols")
        function = site.scope.lowering.program.functions.get(symbol.name)
        shapes = [site.shape(t) for _, t in function.arguments] if function is not None else []
        called.append(site.scope.lowering.function(symbol.name, shapes, site.operation.start))
    handle = site.emit(CustomCall(**fields), *site.operands, called=called, shape=shape)
    config = _backend_config(site, version == 4)
    if config:
        handle.instruction.ensure_extra().backend_config = config
        handle.instruction.ensure_extra().backend_config_is_json = config.startswith("{")
    device = _only_device(site)
    if device is not None:
        handle.instruction.ensure_extra().sharding = _on_device(shape, device)
    return [] if not results else site.unpacked(handle, len(results))


def _only_device(site: Site) -> int | None:
    """The one device that is to make the call, as JAX says it of a Python function's."""
    attributes = site.operation.attributes
    if isinstance(attributes.get("mhlo.sharding"), str):
        found = written_sharding(attributes["mhlo.sharding"])
        leaf = found.elements[0] if found.elements else found
        return leaf.device if leaf.kind == "maximal" else None
    written = attributes.get("sdy.sharding")
    if not isinstance(written, DialectAttribute):
        return None
    meshes = [placement.mesh for placement in placements(written, site.scope.lowering.program.meshes)]
    return meshes[0].devices[0] if meshes and meshes[0].is_maximal else None


def _on_device(shape: Shape, device: int) -> Sharding:
    if shape.is_tuple and shape.elements:
        return Sharding("tuple", elements=tuple(_on_device(element, device) for element in shape.elements))
    return Sharding("maximal", device=device)


def _check_both_laid_out(site: Site, operands: int, results: int) -> None:
    """Layouts of no values need not be written: portable bytecode leaves empty lists out."""
    of_operands, of_results = site.has("operand_layouts"), site.has("result_layouts")
    if (of_operands and not of_results and results) or (of_results and not of_operands and operands):
        raise site.error(f"{site.name}: layouts are given for operands and results, or for neither")


def _api_version(site: Site, target: str) -> int:
    """As written; a dictionary in mhlo.backend_config is for the typed interface, but for the target XLA expands."""
    version = site.integer("api_version", default=1)
    return 4 if version == 1 and site.has("mhlo.backend_config") and target != "ApproxTopK" else version


def _backend_config(site: Site, is_typed: bool) -> str:
    """A string; or a dictionary: as it is written for the typed interface, as JSON for the others."""
    given = site.get("backend_config", default="")
    if given == "":
        given = site.get("mhlo.backend_config", default="")
    version = site.integer("api_version", default=1)
    if given and version >= 3 and isinstance(given, Dictionary) != is_typed:
        wanted = "dictionary" if is_typed else "string"
        raise site.error(f"{site.name}: backend_config of api_version {version} is a {wanted}")
    if not isinstance(given, Dictionary):
        return str(given)
    return given.text if is_typed else json.dumps(given, sort_keys=True, default=str)


def _laid_out(site: Site, shapes: list[Shape], name: str) -> list[Shape]:
    """The shapes with the layouts that a list of dense<[..]> gives."""
    layouts = site.listed(name)
    if not site.has(name) or site.has("indices_of_shape_operands"):
        return shapes
    if len(shapes) == 1 and shapes[0].is_tuple and len(layouts) == len(shapes[0].elements) and name == "result_layouts":
        return [Shape.tuple(_laid_out(site, list(shapes[0].elements), name))]
    if any(shape.is_tuple for shape in shapes):
        raise site.error(f"{site.name}: {name}: layouts of {len(layouts)} values, found {', '.join(map(str, shapes))}")
    if len(layouts) != len(shapes):
        raise site.error(f"{site.name}: {name} are {len(layouts)}, for {len(shapes)} values")
    found: list[Shape] = []
    for shape, layout in zip(shapes, layouts, strict=True):
        order = site.as_integers(layout, name)
        if sorted(order) != list(range(shape.rank if shape.is_array else 0)):
            raise site.error(f"{site.name}: {name}: {list(order)} is not an order of the dimensions of {shape}")
        found.append(shape.with_layout(Layout(order)) if shape.is_array and len(order) == shape.rank else shape)
    return found


def _tiled(site: Site, shapes: list[Shape]) -> list[Shape]:
    """The shapes with the tiles that result_tilings gives: for each a list of dense<[..]>."""
    given = site.listed("result_tilings") if site.has("result_tilings") else []
    if not given:
        return shapes
    if len(given) != len(shapes):
        raise site.error(f"{site.name}: result_tilings of {len(given)} results, there are {len(shapes)}")
    found: list[Shape] = []
    for shape, rows in zip(shapes, given, strict=True):
        if not isinstance(rows, list) or not (shape.is_array or not rows):
            raise site.error(f"{site.name}: result_tilings are a list of dense<[..]> for each array")
        sizes = [site.as_integers(row, "result_tilings") for row in rows]  # pyright: ignore[reportUnknownVariableType]
        tiles = tuple(tuple(None if n == _COMBINED else n for n in tile) for tile in sizes)
        if any(n is not None and n < 0 for tile in tiles for n in tile):
            raise site.error(f"{site.name}: the sizes of tiles are not negative: {tiles}")
        found.append(shape.with_layout(replace(shape.layout_or_default, tiles=tiles)) if tiles else shape)
    return found


_COMBINED = -(2**63)
"""The size of a tile that HLO writes as `*`: its dimension is combined with the next."""


def _implied_aliases(site: Site, target: str) -> list[tuple[tuple[int, ...], int, tuple[int, ...]]]:
    """Pin and Unpin return their operand's memory, which JAX does not write."""
    return [((), 0, ())] if target in BUFFER_TARGETS and site.operands else []


def _aliases(site: Site) -> list[tuple[tuple[int, ...], int, tuple[int, ...]]]:
    found: list[tuple[tuple[int, ...], int, tuple[int, ...]]] = []
    for alias in site.listed("output_operand_aliases"):
        value: Any = alias.value if isinstance(alias, DialectAttribute) else None
        if not isinstance(value, dict):
            raise site.error(f"{site.name}: output_operand_aliases are #stablehlo.output_operand_alias<...>")
        output = site.as_integers(value.get("output_tuple_indices", ()), "output_tuple_indices")  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        inside = site.as_integers(value.get("operand_tuple_indices", ()), "operand_tuple_indices")  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        number = site.each_integer([value.get("operand_index", 0)], "operand_index")[0]  # pyright: ignore[reportUnknownMemberType]
        found.append((output, number, inside))
    return found


def _tuple(site: Site) -> XlaOp:
    return site.emit(Tuple(), *site.operands)


def _get_tuple_element(site: Site) -> XlaOp:
    given = site.ranges()
    index = site.integer("index", default=given[0][0] if given else None)
    return site.emit(GetTupleElement(index), *site.exactly(1))


def _optimization_barrier(site: Site) -> list[XlaOp]:
    """HLO's takes one value: a tuple where there are several."""
    if len(site.operands) == 1:
        return [site.emit(OptBarrier(), site.operands[0])]
    return list(site.emit(OptBarrier(), site.emit(Tuple(), *site.operands)))


def _create_token(site: Site) -> XlaOp:
    return communication.create_token(site.builder)


def _after_all(site: Site) -> XlaOp:
    return communication.after_all(site.builder, site.operands)


def _infeed(site: Site) -> list[XlaOp]:
    """(data.., token): HLO's gives one value, here a tuple of the data."""
    (token,) = site.exactly(1)
    shapes = _data(site)
    layouts = site.get("layout", default=None)
    if layouts is not None:
        lists = site.listed("layout")
        if len(lists) != len(shapes) or not all(isinstance(order, list) for order in lists):
            raise site.error(f"{site.name}: layout is not a list of {len(shapes)} lists of integers")
        for order in lists:
            site.as_integers(order, "layout")
    item, after = communication.infeed_with_token(token, Shape.tuple(shapes), site.string("infeed_config", default=""))
    return [*item, after]


def _data(site: Site) -> list[Shape]:
    """The results but the last, which is a token."""
    results = site.results
    if [shape.is_token for shape in results] != [False] * (len(results) - 1) + [True]:
        raise site.error(f"{site.name} gives arrays, and a token as the last of its results")
    return results[:-1]


def _outfeed(site: Site) -> XlaOp:
    *values, token = site.operands or [site.operand(0)]
    data = values[0] if len(values) == 1 else site.emit(Tuple(), *values)
    return communication.outfeed_with_token(data, token, data.shape, site.string("outfeed_config", default=""))


def _channel(site: Site) -> communication.ChannelHandle:
    given = site.parameters("channel_handle")
    handle = site.each_integer([given.get("handle", 0), given.get("type", 1)], "channel_handle")
    kind = _CHANNELS.get(handle[1], "device_to_device")
    return communication.ChannelHandle(handle[0], "device_to_device" if site.scope.lowering.is_process else kind)


def _check_host_channel(site: Site, direction: str) -> None:
    """StableHLO's verifier wants the direction in the channel's type, where there is a channel."""
    if site.has("channel_handle") and _channel(site).type != direction:
        raise site.error(f"{site.name}: is_host_transfer, with a channel that is not {direction}")


def _is_of_host(site: Site) -> bool:
    return site.boolean("is_host_transfer", default=False) and not site.scope.lowering.is_process


def _send(site: Site) -> XlaOp:
    *values, token = site.operands or [site.operand(0)]
    channel = _channel(site)
    if _is_of_host(site):
        _check_host_channel(site, "device_to_host")
        if len(values) != 1:
            raise site.unsupported("a transfer to the host of several values")
        return communication.send_to_host(
            values[0], token, values[0].shape, communication.ChannelHandle(channel.handle, "device_to_host")
        )
    data = values[0] if len(values) == 1 else site.emit(Tuple(), *values)
    return communication.send_with_token(data, token, channel)


def _recv(site: Site) -> list[XlaOp]:
    (token,) = site.exactly(1)
    channel, shapes = _channel(site), _data(site)
    shape = shapes[0] if len(shapes) == 1 else Shape.tuple(shapes)
    if _is_of_host(site):
        _check_host_channel(site, "host_to_device")
        host = communication.ChannelHandle(channel.handle, "host_to_device")
        data, after = communication.recv_from_host(token, shape, host)
    else:
        data, after = communication.recv_with_token(token, shape, channel)
    return [*site.unpacked(data, len(shapes)), after]


_ASYNCHRONOUS = frozenset(
    [
        "all_gather",
        "all_reduce",
        "all_to_all",
        "collective_broadcast",
        "collective_permute",
        "collective_reduce",
        "dynamic_slice",
        "dynamic_update_slice",
        "reduce_scatter",
        "slice",
    ]
)


def _async_start(site: Site) -> list[XlaOp]:
    """The region's results at once: the future is their value, a tuple where there are several."""
    names = [operation.name.partition(".")[2] for operation in site.region(0).operations]
    if len(site.operation.regions) != 1 or len(names) != 2 or names[0] not in _ASYNCHRONOUS:
        raise site.error(f"{site.name}: its one region holds a collective or a slice, and a return")
    results = manual.inlined(site, site.operands)
    return results if len(results) == 1 else [site.emit(Tuple(), *results)]


def _async_done(site: Site) -> list[XlaOp]:
    (future,) = site.exactly(1)
    return site.unpacked(future, len(site.operation.result_types))


def _trace(site: Site) -> list[XlaOp]:
    """A mark for a profiler."""
    site.exactly(1)
    return []


def _same(site: Site) -> list[XlaOp]:
    """A hint for a partitioner: programs run on global values."""
    return site.exactly(1)


def _reshared(site: Site) -> list[XlaOp]:
    """A collective of Shardy's: the value, known to be wanted where `out_sharding` says."""
    return manual.constrained(site, "out_sharding") if site.scope.lowering.keeps_regions else _same(site)


def _barrier(site: Site) -> list[XlaOp]:
    """sdy.propagation_barrier: the value; axes go on from it, or to it, in the allowed direction alone."""
    (value,) = site.exactly(1)
    direction = site.get("allowed_direction")
    if isinstance(direction, int) and 0 <= direction < len(_BARRIERS):
        direction = list(_BARRIERS)[direction]
    if direction not in _BARRIERS:
        raise site.error(f"{site.name}: allowed_direction is {direction}, expected one of {' '.join(_BARRIERS)}")
    if site.scope.lowering.keeps_regions and value.shape.is_array:
        for target in _BARRIERS[direction]:
            value = manual.boundary(site, target, value, value.shape)
    return [value]


def _named_computation(site: Site) -> list[XlaOp]:
    return manual.inlined(site, site.operands)


RULES: dict[str, Rule] = {
    "after_all": _after_all,
    "async_done": _async_done,
    "async_start": _async_start,
    "case": _case,
    "composite": _composite,
    "create_token": _create_token,
    "custom_call": _custom_call,
    "get_tuple_element": _get_tuple_element,
    "if": _if,
    "infeed": _infeed,
    "optimization_barrier": _optimization_barrier,
    "outfeed": _outfeed,
    "recv": _recv,
    "send": _send,
    "trace": _trace,
    "tuple": _tuple,
    "while": _while,
}

OTHER_RULES: dict[str, Rule] = {
    "arith.constant": constant,
    "builtin.unrealized_conversion_cast": _same,
    "func.call": _call,
    "sdy.constant": constant,
    "sdy.manual_computation": manual.manual_computation,
    "sdy.named_computation": _named_computation,
    **{f"sdy.{name}": _reshared for name in _COLLECTIVES},
    "sdy.data_flow_edge": _same,
    "sdy.func_data_flow_edge": _same,
    "sdy.propagation_barrier": _barrier,
    "sdy.reshard": manual.constrained,
    "sdy.sharding_constraint": manual.constrained,
    "sdy.sharding_group": manual.grouped,
}
"""Operations of other dialects."""
