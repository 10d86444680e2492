"""Known edits of modules, and how many of them `hk.diff` finds: python -m tests.judge.edits [--edits K] [--count N]

Each module is copied, edited at K places, renamed throughout and put into another order. Found must be: the edited
instructions, their counterparts, and nothing else. Prints precision and recall; exit status 1 below 0.98.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

import hlokit as hk
from tests.golden.programs import BUNDLED, program_names, read_program

LEAST = 0.98
_BINARY = ("add", "subtract", "multiply", "maximum", "minimum", "divide")
_UNARY = ("negate", "abs", "sine", "exponential", "tanh", "cosine")


@dataclass
class Edited:
    """A module and its edited copy: what is to be found, as (kind, name in the original, name in the copy)."""

    a: hk.HloModule
    b: hk.HloModule
    copies: dict[hk.Instruction, hk.Instruction]
    touched: set[hk.Instruction] = field(default_factory=set)
    """Instructions of the copy that an edit has changed, or next to one that has: no other edit goes there."""
    changed: set[hk.Instruction] = field(default_factory=set)
    only_a: set[hk.Instruction] = field(default_factory=set)
    only_b: set[hk.Instruction] = field(default_factory=set)

    def wanted(self) -> Counter[tuple[str, str, str]]:
        original = {copy: i for i, copy in self.copies.items()}
        found = [("changed", original[i].name, i.name) for i in self.changed]
        found += [("a", i.name, "") for i in self.only_a]
        return Counter([*found, *(("b", "", i.name) for i in self.only_b)])


def edited(module: hk.HloModule, edits: int, seed: int) -> Edited:
    """A copy with so many edits, other names and another order."""
    draw = random.Random(seed)
    b = module.clone()
    copies = {
        i: copy
        for one, other in zip(module.computations(), b.computations(), strict=True)
        for i, copy in zip(one.post_order(), other.post_order(), strict=True)
    }
    pair = Edited(module, b, copies)
    left = list(copies.values())
    draw.shuffle(left)
    done = 0
    for instruction in left:
        if done < edits:
            done += _edit(pair, instruction, draw)
    _shuffle(b, draw)
    return pair


def _edit(pair: Edited, i: hk.Instruction, draw: random.Random) -> bool:
    """One edit at an instruction, if any is possible there."""
    near = {i, *i.operands, *i.users}
    if near & pair.touched or len(i.users) > 20 or i.parent is None or not (i.users or i.is_root):
        return False
    for kind in draw.sample(_EDITS, len(_EDITS)):
        if kind(pair, i, draw):
            pair.touched |= near
            return True
    return False


def _constant(pair: Edited, i: hk.Instruction, draw: random.Random) -> bool:
    if i.opcode != "constant" or i.shape.dtype.name not in ("f32", "s32") or i.op.literal.is_elided:
        return False
    value = i.op.literal.to_python()
    other = np.asarray(value + np.asarray(3, value.dtype))
    if np.array_equal(value, other, equal_nan=True):
        return False
    _put(pair, i, i.op.replace(literal=hk.Literal(i.shape, other)))
    return True


def _opcode(pair: Edited, i: hk.Instruction, draw: random.Random) -> bool:
    for group in (_BINARY, _UNARY):
        if i.opcode in group and i.shape.is_array and i.shape.dtype.is_floating:
            _put(pair, i, hk.OPS[draw.choice([name for name in group if name != i.opcode])]())
            return True
    return False


def _insert(pair: Edited, i: hk.Instruction, draw: random.Random) -> bool:
    """Another op between it and one of its users."""
    if not (i.shape.is_array and i.shape.dtype.is_floating and i.users and i.parent):
        return False
    user = next((u for u in i.users if u.op.form == "map" or u.opcode in ("dot", "reduce", "reshape")), None)
    if user is None or len(set(user.operands)) != len(user.operands):
        return False
    new = i.parent.add(hk.OPS[draw.choice(_UNARY)](), [i])
    _with_operand(user, i, new)
    pair.only_b.add(new)
    pair.changed.add(user)
    pair.touched |= {new, user}
    return True


def _bypass(pair: Edited, i: hk.Instruction, draw: random.Random) -> bool:
    """It goes, its operand is used in its place."""
    if i.is_root or i.op.form != "map" or i.parent is None or len(i.operands) != 1:
        return False
    operand = i.operands[0]
    if operand.shape is not i.shape or any(operand in user.operands for user in i.users):
        return False
    pair.changed |= set(i.users)
    i.parent.replace(i, operand)
    i.parent.remove(i)
    pair.only_a.add(next(original for original, copy in pair.copies.items() if copy is i))
    return True


def _rewire(pair: Edited, i: hk.Instruction, draw: random.Random) -> bool:
    """It takes another operand of the same shape that was there already, and its old one keeps another user."""
    if i.parent is None or len(set(i.operands)) != len(i.operands) or not i.operands:
        return False
    old = draw.choice(i.operands)
    before = i.parent.post_order()
    before = before[: before.index(i)]
    others = [o for o in before if o.shape is old.shape and o not in i.operands and o not in pair.touched]
    if len(old.users) < 2 or not others:
        return False
    _with_operand(i, old, draw.choice(others))
    pair.changed.add(i)
    return True


_EDITS: list[Callable[[Edited, hk.Instruction, random.Random], bool]] = [_constant, _opcode, _insert, _bypass, _rewire]


def _put(pair: Edited, i: hk.Instruction, op: hk.Op) -> None:
    i.op = op
    pair.changed.add(i)
    assert i.parent is not None
    i.parent.version += 1


def _with_operand(user: hk.Instruction, old: hk.Instruction, new: hk.Instruction) -> None:
    place = user.operands.index(old)
    user.operands = user.operands[:place] + (new,) + user.operands[place + 1 :]
    del old.users[user]
    new.users[user] = place
    assert user.parent is not None
    user.parent.version += 1


def _shuffle(module: hk.HloModule, draw: random.Random) -> None:
    """Other names, and another order in which operands still come first."""
    names = list(range(sum(len(c) for c in module.all_computations)))
    draw.shuffle(names)
    for computation in module.all_computations:
        computation.name = f"c{names[0]}.{computation.name[::-1].strip('._-0123456789') or 'x'}"
        waiting = {i: len({*i.operands, *i.control_predecessors}) for i in computation.instructions}
        ready = [i for i, count in waiting.items() if not count]
        order: list[hk.Instruction] = []
        while ready:
            i = ready.pop(draw.randrange(len(ready)))
            order.append(i)
            for user in i.users:
                waiting[user] -= 1
                if not waiting[user]:
                    ready.append(user)
        if len(order) == len(computation):
            computation.reorder(order)
        for i in computation.instructions:
            i.name = f"v{names.pop()}"


def found_in(diff: object) -> Counter[tuple[str, str, str]]:
    """What a diff tells, as `Edited.wanted` has it."""
    assert isinstance(diff, type(hk.diff(_EMPTY, _EMPTY)))
    pairs = [p for c in diff.computations for p in c.pairs if p.kind != "same"]
    return Counter((p.kind, p.a.name if p.a else "", p.b.name if p.b else "") for p in pairs)


_EMPTY = hk.parse("HloModule m\nENTRY e { ROOT x = f32[] constant(0) }")


def large(size: int, seed: int) -> hk.HloModule:
    """A module of about `size` instructions: layers with residuals, reductions and constants of their own."""
    draw = random.Random(seed)
    b = hk.Builder("large")
    x = b.parameter(0, hk.f32[16, 32])
    weights = [b.parameter(1 + n, hk.f32[32, 32]) for n in range(8)]
    values = [x]
    while x.instruction.id < size:
        y = hk.dot(draw.choice(values[-3:]), draw.choice(weights))
        y = hk.tanh(y + b.constant(np.float32(draw.randrange(50))))
        mean = hk.reduce(y, b.constant(np.float32(0)), hk.add, [1]) if draw.random() < 0.3 else None
        if mean is not None:
            y = y - hk.broadcast_in_dim(mean, [16, 32], [0])
        values.append(y * draw.choice(values[-5:]))
        x = values[-1]
    return b.build(hk.tuple_(b, values[-4:]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edits", type=int, default=5)
    parser.add_argument("--count", type=int, default=5, help="copies of each module")
    parser.add_argument("--show", action="store_true", help="print what was wanted and not found, and the reverse")
    options = parser.parse_args()
    modules = [hk.parse(read_program(BUNDLED, name).hlo) for name in program_names(BUNDLED)]
    modules += [large(10_000, seed) for seed in range(2)]
    wanted = right = told = 0
    slowest = 0.0
    for module in modules:
        for seed in range(options.count):
            pair = edited(module, options.edits, seed)
            start = time.perf_counter()
            found, expected = found_in(hk.diff(pair.a, pair.b)), pair.wanted()
            slowest = max(slowest, time.perf_counter() - start)
            right += (found & expected).total()
            wanted, told = wanted + expected.total(), told + found.total()
            if options.show and found != expected:
                print(f"{module.name} {seed}: missed {dict(expected - found)}, told {dict(found - expected)}")
    precision, recall = right / told, right / wanted
    print(f"{len(modules) * options.count} pairs, {wanted} differences: precision {precision:.4f}, recall {recall:.4f}")
    print(f"slowest {slowest:.2f} s")
    return int(min(precision, recall) < LEAST)


if __name__ == "__main__":
    sys.exit(main())
