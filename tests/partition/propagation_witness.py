"""Compares propagated shardings with jaxlib's Shardy: python -m tests.partition.propagation_witness.

    --count N       so many random programs (5,000); --seed: the first one
    --programs      the JAX programs of the tests with random shardings, on meshes of 2, 4 and 8, and models
    --show N        prints the first N arrays that differ
    --record FILE   writes programs and Shardy's placements, for test_propagation.py
    --bytes         the bytes that collectives move by these placements and by Shardy's

Each program becomes StableHLO; jaxlib's sdy-propagation-pipeline gives each of its operations a sharding.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import hlokit as hk
from hlokit.analysis.simulation import simulate
from hlokit.hlo.instruction import Instruction
from hlokit.judge.fuzz.programs import random_module
from hlokit.judge.fuzz.shardings import MESHES, random_sharding
from hlokit.ops.structure import Parameter, Tuple
from hlokit.passes.partitioner import partitioned, prepared
from hlokit.passes.partitioner.placement import Grid, Parts, Placement, leaves_of
from hlokit.passes.partitioner.propagation import Propagation, propagate, stated
from hlokit.passes.partitioner.splitting import split
from hlokit.stablehlo.manual import PRIORITIES
from hlokit.stablehlo.shardings import placements
from hlokit.types.mesh import Axis, Mesh
from hlokit.types.sharding import DimensionSharding, NamedSharding, Sharding
from tests.golden.programs import BUNDLED, program_names, read_program
from tests.partition.campaign import options

_SIZES = (2, 4, 6, 8, 12, 16, 24)
_TYPES = ("f32", "f32", "s32", "pred", "f64")
_NO_OPERATION = frozenset({"add-dependency", "get-tuple-element"})
"""Instructions that are no operations of StableHLO of one result, which could state its sharding."""
_NOT_DRAWN = frozenset(
    {
        "map",
        "scaled-dot",
        "select-and-scatter",
        "acos",
        "asin",
        "acosh",
        "asinh",
        "atanh",
        "cosh",
        "stochastic-convert",
        "sinh",
        "erf",
    }
)
"""Ops for which Shardy has no rule, or which are several operations."""
_NO_RULE = re.compile(r" (?:mhlo|chlo)\.\w+ [%(]|stablehlo\.(?:map|composite)\b")
ID = "hlokit.id"
"""The frontend attribute by which an operation says which instruction it is."""
_TEXT = re.compile(r'hlokit\.id = "([^"]*)"')

Placed = dict[str, list[list[list[list[int]]]]]
"""For each instruction by name: of each of its copies, for each array and each dimension, the numbers of parts."""


@dataclass(frozen=True)
class Case:
    """A program with shardings, ready to be split and propagated."""

    name: str
    module: hk.HloModule
    mesh: Mesh

    @property
    def grid(self) -> Grid:
        found = [
            leaf for i in self.module.instructions() for s in [stated(i)] if s is not None for leaf in leaves_of(s)
        ]
        return Grid(self.mesh, found)


# -- Shardy


class Shardy:
    """jaxlib's Shardy in a process of its own, which is started again where a program ends it."""

    def __init__(self) -> None:
        self._pool: Any = None

    def __call__(self, case: Case) -> Placed | str:
        """The placements that it gives; why there are none."""
        found = stablehlo(case)
        if isinstance(found, str):
            return found
        if self._pool is None:
            self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        try:
            texts = self._pool.submit(propagated, *found).result()
        except BrokenProcessPool:
            self.close()
            return "(Shardy ends the process)"
        if isinstance(texts, str):
            return texts
        if any(name not in texts for name in found[1] if " " not in name):
            return "(shardings of what is no operation of StableHLO)"
        grid, meshes = case.grid, {"mesh": _mesh(case.mesh)}

        def parts(text: str) -> list[list[list[int]]]:
            return [[list(grid.parts_of(axes)) for axes in p.dimensions] for p in placements(text, meshes)]

        return {name: [parts(text) for text in copies] for name, copies in texts.items()}

    def close(self) -> None:
        """Ends the process."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


def propagated(text: str, shardings: Mapping[str, list[str]]) -> dict[str, list[str]] | str:
    """Shardy's attribute of each copy of each named operation, of the arguments and of the results; or its error."""
    from jax._src.interpreters import mlir
    from jaxlib.mlir import ir
    from jaxlib.mlir.passmanager import PassManager

    placed: dict[str, list[str]] = {}
    with mlir.make_ir_context() as context:
        context.allow_unregistered_dialects = True
        try:
            module = ir.Module.parse(text)
            main = _main(module)
            for op in _operations(module.operation):
                name = _name(op)
                if name in shardings:
                    said = ", ".join(shardings[name])
                    op.attributes["sdy.sharding"] = ir.Attribute.parse(f"#sdy.sharding_per_value<[{said}]>")
            _mark(ir, main, "arg_attrs", [shardings.get(f"parameter {i}") for i in range(len(main.arguments))])
            _mark(ir, main, "res_attrs", [shardings.get(f"result {i}") for i in range(len(main.type.results))])
            PassManager.parse("builtin.module(sdy-propagation-pipeline)").run(module.operation)
        except ir.MLIRError as error:
            return f"(refused) {str(error).splitlines()[1][:100]}"
        main = _main(module)
        for op in _operations(module.operation):
            name = _name(op)
            if name:
                attribute = op.attributes["sdy.sharding"] if "sdy.sharding" in op.attributes else ""  # noqa: SIM401
                placed.setdefault(name, []).append(_text(attribute))
        for what, key in (("parameter", "arg_attrs"), ("result", "res_attrs")):
            for i, marks in enumerate(main.attributes[key] if key in main.attributes else []):  # noqa: SIM401
                if "sdy.sharding" in marks:
                    placed[f"{what} {i}"] = [_text(marks["sdy.sharding"])]
    return placed


def _text(attribute: Any) -> str:
    text = str(attribute)
    return text[text.index("<") :] if "<" in text else text


def stablehlo(case: Case) -> tuple[str, dict[str, list[str]]] | str:
    """The program as StableHLO whose operations say their names, and what is stated in Shardy's text; or why not."""
    module = case.module.clone()
    if any(0 in leaf.dimensions for i in module.instructions() for leaf in i.shape.leaves() if leaf.is_array):
        return "(no elements)"  # Shardy divides by the sizes
    shardings: dict[str, list[str]] = {}
    root = module.entry.root
    for computation in module.computations():
        for instruction in computation.instructions:
            said = _stated_text(instruction, case.mesh)
            extra = instruction.ensure_extra()
            extra.sharding = None
            extra.frontend_attributes.clear()
            if isinstance(instruction.op, Parameter):
                if computation is module.entry and said:
                    shardings[f"parameter {instruction.op.number}"] = said
                continue
            if instruction is root and isinstance(root.op, Tuple):
                shardings |= {f"result {i}": [text] for i, text in enumerate(said)}
                continue
            extra.frontend_attributes[ID] = instruction.name
            if said:
                shardings[instruction.name] = said
    try:
        text = hk.to_stablehlo(module)
    except hk.UnsupportedError:
        return "(not StableHLO)"
    if _NO_RULE.search(text):
        return "(no rule of Shardy's for an op)"
    head, brace, rest = text.partition("{\n")
    if "attributes" in head:
        head, brace, rest = text.partition("} {\n")
    return f"{head}{brace}  sdy.mesh @mesh = {_mesh(case.mesh)}\n{rest}", shardings


def _mesh(mesh: Mesh) -> str:
    return "<[" + ", ".join(f'"{name}"={size}' for name, size in mesh.axes) + "]>"


def _stated_text(instruction: Instruction, mesh: Mesh) -> list[str]:
    sharding = stated(instruction)
    if sharding is None:
        return []
    leaves = leaves_of(sharding)
    extra = instruction.extra
    priorities = extra.frontend_attributes.get(PRIORITIES, "") if extra is not None else ""
    found: list[str] = []
    for leaf, shape in zip(leaves, instruction.shape.leaves(), strict=True):
        if leaf.kind == "unknown":
            found.append(f"#sdy.sharding<@mesh, [{', '.join(['{?}'] * shape.rank)}]>")
            continue
        assert leaf.named is not None
        dimensions: list[str] = []
        for d, dimension in enumerate(leaf.named.dimensions):
            words = [*map(_axis, dimension.axes), *(["?"] if dimension.is_open else [])]
            number = priorities.split(",")[d] if priorities else "0"
            dimensions.append("{" + ", ".join(words) + "}" + (f"p{number}" if number != "0" else ""))
        kept = ", ".join(map(_axis, leaf.named.replicated))
        kept = f", replicated={{{kept}}}" if kept else ""
        found.append(f"#sdy.sharding<@mesh, [{', '.join(dimensions)}]{kept}>")
    return found


def _axis(axis: Axis) -> str:
    return f'"{axis.name}":({axis.pre}){axis.size}' if axis.is_part else f'"{axis.name}"'


def _operations(op: Any) -> Iterator[Any]:
    for region in op.regions:
        for block in region:
            for inner in block:
                yield inner
                yield from _operations(inner.operation)


def _name(op: Any) -> str:
    if "mhlo.frontend_attributes" not in op.attributes:
        return ""
    found = _TEXT.search(str(op.attributes["mhlo.frontend_attributes"]))
    return found[1] if found is not None else ""


def _main(module: Any) -> Any:
    return next(op for op in module.body if op.operation.name == "func.func" and str(op.name) == '"main"')


def _mark(ir: Any, main: Any, key: str, said: Sequence[list[str] | None]) -> None:
    marks: list[Any] = []
    for text in said:
        marks.append(ir.DictAttr.get({"sdy.sharding": ir.Attribute.parse(text[0])} if text else {}))
    main.attributes[key] = ir.ArrayAttr.get(marks)


# -- the comparison


def ours(case: Case) -> tuple[Placed, tuple[hk.HloModule, dict[Instruction, Instruction], Propagation]]:
    """The placements that propagation gives, by the same names; the module that it is of, whose copies, and itself."""
    module, sources = split(case.module)
    found = propagate(module, case.grid)
    placed: Placed = {}
    for instruction, arrays in found.placements.items():
        lists = [_lists(p.dimensions) for p in arrays]
        placed.setdefault(sources[instruction].name, []).append(lists)
    for parameter in case.module.entry.parameters:
        assert isinstance(parameter.op, Parameter)
        placed[f"parameter {parameter.op.number}"] = placed[parameter.name]
    placed |= {f"result {i}": [[_lists(p.dimensions)]] for i, p in enumerate(found.results)}
    return placed, (module, sources, found)


def _lists(dimensions: Sequence[Parts]) -> list[list[int]]:
    return [list(parts) for parts in dimensions]


def is_left_out(case: Case, name: str, arrays: list[list[list[list[int]]]]) -> bool:
    """Whether Shardy gathers it at last: an argument or a result of parts that are not equal, or along parts of axes."""
    what, _, number = name.partition(" ")
    if what not in ("parameter", "result") or not number:
        return False
    grid, entry = case.grid, case.module.entry
    shape = entry.parameters[int(number)].shape if what == "parameter" else list(entry.root.shape.leaves())[int(number)]
    axes = [axis for parts in arrays[0][0] for axis in grid.axes_of(tuple(parts))]
    even = all(n % grid.count(parts) == 0 for n, parts in zip(shape.dimensions, arrays[0][0], strict=True))
    return not even or any(axis.is_part for axis in axes)


def difference(mine: Placed, theirs: Placed) -> dict[str, str]:
    """The arrays that lie elsewhere: how, by name. What Shardy says nothing of is whole."""
    found: dict[str, str] = {}
    for name, copies in theirs.items():
        for leaf in range(len(mine[name][0]) if name in mine else 0):
            placed = {str(copy[leaf]) for copy in mine[name]}
            whole = str([[] for _ in mine[name][0][leaf]])
            wanted = {str(copy[leaf]) if leaf < len(copy) else whole for copy in copies}
            if placed != wanted:
                found[f"{name}[{leaf}]"] = f"{sorted(placed)} for Shardy's {sorted(wanted)}"
    return found


def compared_count(mine: Placed, theirs: Placed) -> tuple[int, int]:
    """So many arrays are compared; and so many of them that one of the two divides."""
    names = [name for name in theirs if name in mine]
    divided = sum("[0" in text or any(f"[{n}" in text for n in range(1, 10)) for text in _arrays(mine, theirs, names))
    return sum(len(mine[name][0]) for name in names), divided


def _arrays(mine: Placed, theirs: Placed, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        for leaf in range(len(mine[name][0])):
            yield str([copy[leaf] for found in (mine, theirs) for copy in found[name] if leaf < len(copy)])


# -- programs


def random_cases(count: int, seed: int = 0) -> Iterator[Case]:
    """Random programs on random meshes: some shardings closed, some open, some with priorities."""
    for number in range(seed, seed + count):
        chance = random.Random(number)
        drawn = options(number % 2 == 0)
        assert drawn.opcodes is not None
        drawn = replace(drawn, dimensions=_SIZES, types=_TYPES, opcodes=drawn.opcodes - _NOT_DRAWN)
        module = random_module(number, drawn)
        sizes = chance.choice(MESHES)
        mesh = Mesh(tuple(zip("abc", sizes, strict=False)))
        share = chance.choice([0.1, 0.3, 0.6])
        for instruction in module.entry.instructions:
            is_one = instruction.shape.is_array and instruction.opcode not in _NO_OPERATION
            if is_one and chance.random() < (0.7 if isinstance(instruction.op, Parameter) else share / 2):
                _shard(chance, instruction, mesh)
        yield Case(f"random {number}", prepared(module), mesh)


def _shard(chance: random.Random, instruction: Instruction, mesh: Mesh) -> None:
    sharding = random_sharding(chance, mesh, instruction.shape.rank)
    assert sharding.named is not None
    dimensions = list(sharding.named.dimensions)
    for d, size in enumerate(instruction.shape.dimensions):
        if size == 1:
            dimensions[d] = DimensionSharding()
    priorities = [0] * len(dimensions)
    for d, dimension in enumerate(dimensions):
        if chance.random() < 0.25:
            dimensions[d] = DimensionSharding(dimension.axes, is_open=True)
        if dimension.axes and chance.random() < 0.1:
            priorities[d] = chance.randrange(1, 3)
    named = NamedSharding(mesh, tuple(dimensions))
    used = {axis.name for d in dimensions for axis in d.axes}
    free = tuple(Axis(name) for name, _ in mesh.axes if name not in used)
    if free and chance.random() < 0.1:
        named = replace(named, replicated=free[:1])
    extra = instruction.ensure_extra()
    extra.sharding = Sharding("named", named=named)
    if any(priorities):
        extra.frontend_attributes[PRIORITIES] = ",".join(map(str, priorities))


def program_cases() -> Iterator[Case]:
    """The JAX programs with random shardings of parameters."""
    for name in program_names(BUNDLED):
        for sizes in ((2,), (2, 2), (2, 4)):
            mesh = Mesh(tuple(zip("ab", sizes, strict=False)))
            module = hk.parse(read_program(BUNDLED, name).hlo)
            chance = random.Random(f"{name} {mesh.size} 0")
            for parameter in module.entry.parameters:
                if parameter.shape.is_array and chance.random() < 0.7:
                    parameter.ensure_extra().sharding = random_sharding(chance, mesh, parameter.shape.rank)
            yield Case(f"{name} on {sizes}", prepared(module), mesh)


_MOST_RECORDED = 2500
"""Characters of a program that is recorded."""
_WAYS = ("DP", "FSDP", "TP", "TP and FSDP")
_BY_ROWS = re.compile(r"__(o|w2)__|params_1__0|^(w2|wd)\b")


def model_cases() -> Iterator[Case]:
    """Programs with parameters, sharded as people do: by examples, weights too, or by features."""
    for name in ("mlp_forward", "gpt_train_step_adam", "transformer_block_forward", "rmsnorm_swiglu", "vae_elbo_grad"):
        for way in _WAYS:
            mesh = Mesh((("data", 2), ("model", 4)))
            module = hk.parse(read_program(BUNDLED, name).hlo)
            for parameter in module.entry.parameters:
                axes = _axes_of(parameter, way)
                if any(axes):
                    named = NamedSharding(mesh, tuple(DimensionSharding((Axis(a),) if a else ()) for a in axes))
                    parameter.ensure_extra().sharding = Sharding("named", named=named)
            yield Case(f"{name} {way}", prepared(module), mesh)


def _axes_of(parameter: Instruction, way: str) -> list[str]:
    """The axis of each dimension; "" for none."""
    sizes = parameter.shape.dimensions
    axes = [""] * len(sizes)
    is_weight = parameter.name.startswith(("p__", "params_", "w", "g."))
    if not is_weight:
        if sizes and sizes[0] % 2 == 0:
            axes[0] = "data"
        return axes
    if "TP" in way and len(sizes) == 2:
        d = 0 if _BY_ROWS.search(parameter.name) else 1
        axes[d] = "model" if sizes[d] % 4 == 0 else ""
    if "FSDP" in way and sizes:
        free = [d for d, size in enumerate(sizes) if not axes[d] and size % 2 == 0]
        if free:
            axes[free[0]] = "data"
    return axes


def moved(module: hk.HloModule, found: Propagation) -> float:
    """The bytes that collectives move by a propagation, over all links of a ring."""
    parts = partitioned(module, found).module
    replay = simulate(parts, f"ring:{found.grid.size}", bandwidth="100GB/s", latency="1us")
    return sum(link.nbytes for link in replay.links)


def as_shardy(found: Propagation, sources: Mapping[Instruction, Instruction], theirs: Placed) -> Propagation:
    """The propagation with Shardy's placements, where it gives all copies of an instruction the same."""
    placements = dict(found.placements)
    for instruction, mine in found.placements.items():
        copies = theirs.get(sources[instruction].name, [])
        if isinstance(instruction.op, Parameter):
            continue
        if copies and all(copy == copies[0] for copy in copies) and len(copies[0]) == len(mine):
            pairs = zip(copies[0], mine, strict=True)
            placements[instruction] = tuple(Placement(tuple(map(tuple, d)), p.unreduced) for d, p in pairs)
    return replace(found, placements=placements)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--programs", action="store_true")
    parser.add_argument("--show", type=int, default=0)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--bytes", action="store_true")
    given = parser.parse_args()
    equal = total = divided = whole = programs = 0
    kinds: Counter[str] = Counter()
    recorded: list[dict[str, Any]] = []
    shardy = Shardy()
    cases = chain(program_cases(), model_cases()) if given.programs else random_cases(given.count, given.seed)
    ratios: list[tuple[float, str]] = []
    for case in cases:
        theirs = shardy(case)
        if isinstance(theirs, str):
            kinds[theirs] += 1
            continue
        mine, (module, sources, found) = ours(case)
        mine = {name: arrays for name, arrays in mine.items() if not is_left_out(case, name, arrays)}
        apart = difference(mine, theirs)
        count, those = compared_count(mine, theirs)
        divided += those
        programs, whole = programs + 1, whole + (not apart)
        equal, total = equal + count - len(apart), total + count
        if apart:
            kinds[_first(case, apart)] += 1
            if given.bytes:
                here, there = (moved(module, p) for p in (found, as_shardy(found, sources, theirs)))
                ratios.append((here / there if there else float(here > 0) * 99 + 1, f"{case.name}: {here} to {there}"))
            if given.show:
                given.show -= 1
                print(f"--- {case.name}\n{case.module}")
                print("\n".join(f"  {name}: {how}" for name, how in apart.items()))
        text = case.module.to_text("short_parsable")
        if given.record is not None and not apart and those > 2 and len(text) < _MOST_RECORDED:
            recorded.append({"mesh": [list(axis) for axis in case.mesh.axes], "text": text, "placed": theirs})
    shardy.close()
    print(f"{equal} of {total} arrays equal ({equal / max(total, 1):.2%}); {whole} of {programs} programs")
    share = 1 - (total - equal) / max(divided, 1)
    print(f"{divided - total + equal} of the {divided} arrays that are divided by either ({share:.2%})")
    for kind, number in kinds.most_common(30):
        print(f"{number:7} {kind}")
    if given.bytes:
        more = sorted((pair for pair in ratios if pair[0] > 1.1), reverse=True)
        print(f"{len(more)} of {programs} programs move over 10 % more than by Shardy's placements")
        print("\n".join(f"  {ratio:.2f} {text}" for ratio, text in more[:20]))
    if given.record is not None:
        given.record.write_text("\n".join(map(json.dumps, recorded)) + "\n", encoding="utf-8")
    sys.exit(0 if equal >= 0.98 * total else 1)


def _first(case: Case, apart: Mapping[str, str]) -> str:
    """The opcode of the first array that differs."""
    names = {name.rpartition("[")[0] for name in apart}
    opcodes = [i.opcode for i in case.module.entry.instructions if i.name in names]
    return opcodes[0] if opcodes else "parameter or result"


if __name__ == "__main__":
    main()
