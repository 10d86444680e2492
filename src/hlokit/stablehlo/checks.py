"""The check and interpreter dialects, as operations and as custom calls with targets in hlokit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from hlokit.builder.core import XlaOp
from hlokit.errors import EvaluationError
from hlokit.hlo.module import HloModule
from hlokit.ops.custom import CustomCall
from hlokit.ops.custom_targets.registry import Invocation, built_in
from hlokit.stablehlo.movement import constant_of
from hlokit.stablehlo.site import Rule, Site
from hlokit.stablehlo.tree import Dense, Symbol
from hlokit.types import dtype as dtypes
from hlokit.types.shape import Shape

_RUN = "interpreter.run_parallel"
_ALMOST = "check.expect_almost_eq"


def _expected(site: Site) -> list[XlaOp]:
    """check.expect_eq and the like: two values of one type. Custom calls allow more where they do not say how much."""
    target = _target(site)
    is_wide = target == _ALMOST and site.name.endswith("custom_call") and not _kept(site)
    wider = {"tolerance": 1e-3} if is_wide else {}
    return _called(site, target, _pair(site), **wider)


def _pair(site: Site) -> list[XlaOp]:
    """The two operands, which are of one type."""
    first, second = site.exactly(2)
    if first.shape.logical is not second.shape.logical:
        raise site.error(f"{site.name}: {first.shape} and {second.shape}")
    return [first, second]


def _expected_constant(site: Site) -> list[XlaOp]:
    """check.expect_eq_const and the like: the other value is an attribute, or an operand of a custom call."""
    if len(site.operands) == 2:
        return _expected(site)
    (actual,) = site.exactly(1)
    value = site.get("value", default=None)
    if not isinstance(value, Dense) or value.shape.logical is not actual.shape.logical:
        raise site.error(f"{site.name}: the value is a dense<...> of type {actual.shape}")
    return _called(site, _target(site), [actual, constant_of(site, value)])


def _target(site: Site) -> str:
    return _name(site).removesuffix("_const")


def _name(site: Site) -> str:
    """The operation's name, or that of the custom call's target."""
    target: Any = site.get("call_target_name", default=next(iter(site.operation.words), None))
    found = target.name if isinstance(target, Symbol) else str(target)
    return found if site.name.endswith("custom_call") else site.name


def _equal(site: Site) -> list[XlaOp]:
    """The custom call @check.eq(expected, actual): true. Integers are to be equal, others almost."""
    expected, actual = _pair(site)
    if site.results != [dtypes.pred[()]]:
        raise site.error("check.eq gives a tensor<i1>")
    site.operation = replace(site.operation, result_types=())
    is_near = actual.dtype.is_floating or actual.dtype.is_complex
    _called(site, _ALMOST if is_near else "check.expect_eq", [actual, expected])
    return [site.builder.constant(True, dtypes.pred)]


def _called(site: Site, target: str, operands: Sequence[XlaOp], **config: Any) -> list[XlaOp]:
    """A custom-call with a side effect, and what it is to know as JSON."""
    for name in ("tolerance", "min_ulp_difference", "max_ulp_difference", "probe_id", "iteration"):
        found = site.get(name, default=None)
        if isinstance(found, (int, float, str)):
            config[name] = found
    config = {"where": site.where, **config, **_kept(site)}
    results = site.results
    shape = results[0] if len(results) == 1 else Shape.tuple(results)
    fields: dict[str, Any] = {
        "custom_call_target": target, "custom_call_has_side_effect": True, "api_version": "API_VERSION_ORIGINAL",
        "operand_layout_constraints": None, "output_to_operand_aliasing": (), "output_shape": shape,
    }  # fmt: skip
    handle = site.emit(CustomCall(**fields), *operands, shape=shape)
    handle.instruction.ensure_extra().backend_config = json.dumps(config, sort_keys=True)
    handle.instruction.ensure_extra().backend_config_is_json = True
    return [] if not results else site.unpacked(handle, len(results))


def _kept(site: Site) -> dict[str, Any]:
    """The configuration of a call that hlokit wrote; empty for another call."""
    try:
        found: Any = json.loads(str(site.get("backend_config", default="")))
    except ValueError:
        return {}
    return found if isinstance(found, dict) and "where" in found else {}  # pyright: ignore[reportUnknownVariableType]


def _expect_serialized(site: Site) -> list[XlaOp]:
    return _called(site, _target(site), site.exactly(1), iteration=site.integer("iteration", "iter", default=0))


def _probe(site: Site) -> list[XlaOp]:
    (operand,) = site.exactly(1)
    return _called(site, _name(site), [operand], type=_type_text(operand.shape))


def _print(site: Site) -> list[XlaOp]:
    (operand,) = site.exactly(1)
    return _called(site, _name(site), [operand], name=site.operation.operands[0], type=_type_text(operand.shape))


def _type_text(shape: Shape) -> str:
    from hlokit.stablehlo.printer.spelling import type_text

    return type_text(shape)


# -- a grid of processes


def _run_parallel(site: Site) -> list[XlaOp]:
    """Runs a program on each process of a grid. The programs are modules of their own, as text in backend_config."""
    if "modules" in _kept(site):
        return _called(site, _RUN, site.operands)
    grid = _grid(site)
    lowering = site.scope.lowering
    modules: dict[tuple[str, tuple[Shape, ...]], str] = {}
    programs: list[int] = []
    counts: list[int] = []
    operands = list(site.operands)
    for row in grid:
        for name in row:
            function = lowering.program.functions.get(name)
            count = len(function.arguments) if function is not None else 0
            shapes, operands = tuple(o.shape.logical for o in operands[:count]), operands[count:]
            key = name, shapes
            if key not in modules:
                modules[key] = lowering.program_of(name, shapes, (len(grid), len(grid[0])), site.operation.start)
            programs.append(list(modules).index(key))
            counts.append(count)
    if operands:
        raise site.error(f"{site.name}: {len(site.operands)} inputs for programs that take {sum(counts)}")
    infeed = [
        lowering.program_of(name, (), (1, 1), site.operation.start)
        for name in _symbols(site, site.get("infeed", default=[]))
    ]
    config: dict[str, Any] = {"programs": programs, "counts": counts, "modules": list(modules.values())}
    return _called(site, _RUN, site.operands, replicas=len(grid), infeed=infeed, **config)


def _grid(site: Site) -> list[list[str]]:
    rows: Any = site.get("programs")
    if not isinstance(rows, list) or not rows:
        raise site.error(f"{site.name}: programs are [[@name, ...], ...]")
    grid = [_symbols(site, row) for row in rows]  # pyright: ignore[reportUnknownVariableType]
    if not grid[0] or any(len(row) != len(grid[0]) for row in grid):
        raise site.error(f"{site.name}: rows of programs of different lengths, or of none")
    return grid


def _symbols(site: Site, value: Any) -> list[str]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(v, Symbol) for v in value):  # pyright: ignore[reportUnknownVariableType]
        raise site.error(f"{site.name}: a list of @functions, found {value}")
    return [v.name for v in value]  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]


@built_in(_RUN)
def run_parallel(call: Invocation) -> Any:
    """The results of all processes, one behind the other."""
    from hlokit.devices.evaluate import evaluate
    from hlokit.devices.mpmd import evaluate_mpmd

    config: dict[str, Any] = json.loads(call.opaque)
    modules = [_parsed(text) for text in config["modules"]]
    operands: list[Any] = list(call.operands)
    programs: list[tuple[HloModule, list[Any]]] = []
    for number, count in zip(config["programs"], config["counts"], strict=True):
        programs.append((modules[int(number)], operands[:count]))
        operands = operands[count:]
    queue = iter([(evaluate(_parsed(text)),) for text in config["infeed"]])
    try:
        results = evaluate_mpmd(programs, replicas=config["replicas"], infeed=[queue] * len(programs))
    except EvaluationError as error:
        raise EvaluationError(f"{config['where']}: {_RUN}: {error}") from None
    parts: list[Any] = []
    for (module, _), result in zip(programs, results, strict=True):
        parts += result if module.program_shape.result.is_tuple else [result]
    return tuple(parts) if call.shape.is_tuple else parts[0]


@lru_cache(maxsize=64)
def _parsed(text: str) -> HloModule:
    from hlokit.text.parser import parse_hlo

    return parse_hlo(text)


RULES: dict[str, Rule] = {
    _ALMOST: _expected,
    "check.expect_almost_eq_const": _expected_constant,
    "check.expect_close": _expected,
    "check.expect_eq": _expected,
    "check.expect_eq_const": _expected_constant,
    "check.expect_serialized_eq": _expect_serialized,
    "interpreter.print": _print,
    "interpreter.probe": _probe,
    _RUN: _run_parallel,
}
CUSTOM_CALLS: dict[str, Rule] = {**RULES, "check.eq": _equal}
"""Rules by the target's name."""
