"""Compares the factors of random instructions with jaxlib's Shardy: python -m tests.partition.factors_witness.

    --count N       so many instructions (10,000)
    --record FILE   writes the instructions and Shardy's rules, for test_factors.py
    --show CLASS    prints what differs in this way

Each instruction becomes a module of its own, and StableHLO; jaxlib's pass sdy-populate-op-sharding-rules says its rule.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hlokit as hk
from hlokit.analysis.factors import Relation, relation_of
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.judge.fuzz.graph import Options
from hlokit.judge.fuzz.programs import random_module

OPTIONS = Options(dynamic=False, layouts=False, types=("f32", "f32", "s32", "pred", "u8", "c64", "bf16"), wild=0.0)
_ELEMENTWISE = 0.08
"""The share of elementwise ops that are kept: all of one rule."""

_RULE = re.compile(r"#sdy\.op_sharding_rule<\((.*?)\)->\((.*?)\)(?: \{(.*?)\})?((?: \w+=\{[^}]*\})*)>")
_STATEMENT = re.compile(r" {4}\S")
_ARRAY = re.compile(r"\[([^\]]*)\]")
_NAME = re.compile(r"z_\d+|[a-z]")
_KINDS = {"reduction": "folded", "permutation": "shifted", "need_replication": "whole"}

Named = list[list[list[tuple[str, int, str]]]]
"""For each array and each of its dimensions the factors, major to minor: name, size, kind."""


@dataclass(frozen=True)
class Case:
    """An instruction's module, and Shardy's rule for it."""

    opcode: str
    text: str
    rule: str


def shardy_rules(texts: Sequence[str]) -> Iterator[list[str]]:
    """The rules that jaxlib gives the operations of each StableHLO program."""
    from jax._src.interpreters import mlir
    from jaxlib.mlir import ir
    from jaxlib.mlir.passmanager import PassManager

    with mlir.make_ir_context():
        rules = PassManager.parse("builtin.module(func.func(sdy-populate-op-sharding-rules))")
        for text in texts:
            module = ir.Module.parse(text)
            rules.run(module.operation)
            lines = [line for line in str(module).splitlines() if _STATEMENT.match(line)]  # none of a region's
            yield [found[0] for line in lines for found in _RULE.finditer(line)]


def alone(instruction: Instruction) -> hk.HloModule | None:
    """A module of the instruction, whose operands are parameters; None where they are no arrays."""
    module = hk.HloModule("alone")
    entry = Computation("entry")
    if not all(o.shape.is_array for o in instruction.operands):
        return None
    operands: list[Instruction] = []
    for number, operand in enumerate(instruction.operands):
        op = hk.OPS["parameter"](number=number, parameter_shape=operand.shape)
        operands.append(entry.add(op, [], shape=operand.shape))
    called = [c.clone(c.name, module) for c in instruction.called]
    entry.set_root(entry.add(instruction.op, operands, called, shape=instruction.shape))
    module.add_computation(entry, entry=True)
    return module


def random_cases(count: int, seed: int = 0) -> Iterator[tuple[Instruction, str]]:
    """Random instructions with a relation, each the root of its own module; and that in StableHLO."""
    found, kept = 0, 0.0
    while found < count:
        for instruction in random_module(seed, OPTIONS).entry.instructions:
            if relation_of(instruction) is None or not instruction.operands:
                continue
            if instruction.op.form == "map":
                kept += _ELEMENTWISE
                if kept < 1:
                    continue
                kept -= 1
            module = alone(instruction)
            if module is None:
                continue
            try:
                text = hk.to_stablehlo(module)
            except hk.UnsupportedError:
                continue
            found += 1
            yield module.entry.root, text
        seed += 1


def arrays_of_rule(rule: str) -> Named:
    """The arrays of a rule of Shardy's: operands, then results."""
    match = _RULE.match(rule)
    assert match is not None, rule
    sizes = dict(part.split("=") for part in (match[3] or "").split(", ") if part)
    kinds: dict[str, str] = {}
    for word, names in re.findall(r"(\w+)=\{([^}]*)\}", match[4] or ""):
        if word in _KINDS:
            kinds |= dict.fromkeys(_NAME.findall(names), _KINDS[word])
    return [
        [
            [(name, int(sizes[name]), kinds.get(name, "same")) for name in _NAME.findall(d)]
            for d in array.split(", ")
            if d
        ]
        for side in (match[1], match[2])
        for array in _ARRAY.findall(side)
    ]


def arrays_of(relation: Relation) -> Named:
    """The arrays of a relation: operands, then results."""
    arrays = [*relation.operands, *relation.results]
    return [[[(str(f), relation.factors[f].size, relation.factors[f].kind) for f in d] for d in a] for a in arrays]


def difference(instruction: Instruction, relation: Relation, rule: str) -> str:
    """The class of what differs (docs/decisions/0014): "" if the two are equal but for names.

    Dimensions of one element say nothing. A factor that is shifted, looked up or whole has no one size: it is that of
    the operand or of the result. What Shardy blocks, since sizes differ, is not one factor. Where places are looked up
    in an operand alone Shardy says reduction: of what the devices find.
    """
    shapes = [o.shape for o in instruction.operands] + list(instruction.shape.leaves())
    sizes = [shape.dimensions for shape in shapes]
    ours, theirs = _normal(arrays_of(relation), sizes), _normal(arrays_of_rule(rule), sizes)
    if _unlinked(ours) == _unlinked(theirs):
        return ""
    kinds, wanted = _kinds(ours), _kinds(theirs)
    if [[[n for n, *_ in d] for d in a] for a in ours] != [[[n for n, *_ in d] for d in a] for a in theirs]:
        return "links"
    looked_up = {("looked up", "whole"), ("looked up", "folded")}
    apart = {(kinds[k], wanted[k]) for k in kinds if kinds[k] != wanted[k]} - looked_up
    if apart:
        return "kinds: " + ", ".join(f"{a} for Shardy's {b}" for a, b in sorted(apart))
    return "" if _sizes(ours, kinds) == _sizes(theirs, kinds) else "sizes"


def _normal(arrays: Named, sizes: Sequence[Sequence[int]]) -> Named:
    """Without dimensions of one element; a factor in dimensions of several sizes is one for each; named in order."""
    extents: dict[str, set[int]] = {}
    for array, shape in zip(arrays, sizes, strict=True):
        for d, size in zip(array, shape, strict=True):
            for name, _, kind in d:
                if kind not in ("same", "folded") and size > 1:
                    extents.setdefault(name, set()).add(size)
    names: dict[str, str] = {}

    def named(name: str, kind: str, size: int) -> str:
        apart = kind == "looked up" and len(extents.get(name, ())) > 1
        return names.setdefault(f"{name} {size}" if apart else name, str(len(names)))

    found: Named = []
    for array, shape in zip(reversed(arrays), reversed(sizes), strict=True):  # results first
        found.append([])
        for d, size in zip(array, shape, strict=True):
            if size > 1:
                told = [(n, f, kind) for n, f, kind in d if f > 1 or kind == "shifted"]
                found[-1].append([(named(n, kind, size), f, kind) for n, f, kind in told])
    return found


def _unlinked(arrays: Named) -> list[list[list[tuple[str, int]]]]:
    """With one name for all that must be whole: that it is one factor in several arrays says nothing more."""
    names: dict[str, str] = {}
    return [
        [
            [
                ("whole", 0)
                if kind in ("whole", "looked up")
                else (names.setdefault(n, f"{kind} {len(names)}"), size * (kind != "shifted"))
                for n, size, kind in d
            ]
            for d in array
        ]
        for array in arrays
    ]


def _kinds(arrays: Named) -> Mapping[str, str]:
    return {n: kind for array in arrays for d in array for n, _, kind in d}


def _sizes(arrays: Named, kinds: Mapping[str, str]) -> Mapping[str, int]:
    return {n: size for array in arrays for d in array for n, size, _ in d if kinds[n] in ("same", "folded")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--show", default=None)
    options = parser.parse_args()
    classes: Counter[tuple[str, str]] = Counter()
    recorded: list[dict[str, Any]] = []
    cases = list(random_cases(options.count, options.seed))
    for (instruction, _), rules in zip(cases, shardy_rules([text for _, text in cases]), strict=True):
        if len(rules) != 1:
            classes["(several operations of StableHLO, or no rule)", instruction.opcode] += 1
            continue
        relation = relation_of(instruction)
        assert relation is not None
        if len(arrays_of(relation)) != len(arrays_of_rule(rules[0])):
            classes["(other operands in StableHLO)", instruction.opcode] += 1
            continue
        found = difference(instruction, relation, rules[0])
        classes[found, instruction.opcode if found else ""] += 1
        recorded.append({"text": instruction.parent.module.to_text("short_parsable"), "rule": rules[0]})  # type: ignore[union-attr]
        if options.show is not None and found and re.search(options.show, f"{found} {instruction.opcode}"):
            print(f"{instruction}\n  ours   {relation}\n  Shardy {rules[0]}")
    for (found, opcode), count in classes.most_common():
        print(f"{count:7} {found or 'equal'} {opcode}")
    if options.record is not None:
        options.record.write_text("\n".join(map(json.dumps, recorded)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
