"""The correspondence of instructions and computations of two modules, regardless of their names and order."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count, islice
from typing import TypeVar

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.judge.diff.numbering import Numbering

_T = TypeVar("_T")

_NEIGHBOURS = 32
"""Users of a value that are looked at: a constant may have thousands."""
_FEW = 4
_LONGEST = 64
"""Pairs that are exchanged at once."""
_DEPTH = 3
"""Users are compared so many levels down."""


class Matching:
    """Pairs of instructions, and of computations, of the modules `a` and `b`; each occurs once.

    In a pair of computations come together, in this order: equal values where there is one of each, with all that they
    are made of; neighbours of what is paired, with the same opcode, the most alike first; instructions that have taken
    another's place, between the same operands and users; and what has the same value, or name and opcode, anywhere.

    of_a, of_b      the other of its pair, for instructions
    computations    the computation of `b`, for computations of `a`
    moved           instructions of `a` whose counterpart is in a computation that is not its own's counterpart
    """

    def __init__(self, a: HloModule, b: HloModule) -> None:
        self.of_a: dict[Instruction, Instruction] = {}
        self.of_b: dict[Instruction, Instruction] = {}
        self.computations: dict[Computation, Computation] = {}
        self.moved: set[Instruction] = set()
        self._matched: set[Computation] = set()
        self._numbers = Numbering()
        self._numbers.add(a)
        self._numbers.add(b)
        self._open: deque[tuple[Computation, Computation]] = deque()
        self._pair_computations(a.entry, b.entry)
        self._follow()
        for one, other in self._left_over(a, b):
            self._pair_computations(one, other)
            self._follow()
        self._find_moved(a, b)

    # -- computations

    def _pair_computations(self, a: Computation, b: Computation) -> None:
        if a not in self.computations and b not in self._matched:
            self.computations[a] = b
            self._matched.add(b)
            self._open.append((a, b))

    def _follow(self) -> None:
        """Matches the pairs of computations that are open, and what they call: first the calls of equal ones."""
        numbers = self._numbers.computations
        unequal: deque[tuple[Computation, Computation]] = deque()
        while self._open or unequal:
            if not self._open:
                self._pair_computations(*unequal.popleft())
                continue
            a, b = self._open.popleft()
            _Bodies(self, self._numbers, a, b).match()
            for instruction in a.post_order():
                other = self.of_a.get(instruction)
                if other is None or type(other.op) is not type(instruction.op):
                    continue
                for pair in zip(instruction.called, other.called, strict=False):
                    if numbers.get(pair[0]) == numbers.get(pair[1]):
                        self._pair_computations(*pair)
                    else:
                        unequal.append(pair)

    def _left_over(self, a: HloModule, b: HloModule) -> Iterator[tuple[Computation, Computation]]:
        """Computations that no pair of calls has paired: with equal values, else with the same name and signature."""

        def value(computation: Computation) -> Hashable:
            return self._numbers.computations.get(computation)

        def name(computation: Computation) -> Hashable:
            return computation.name, computation.signature()

        for key in (value, name):
            others = _groups((c for c in b.computations() if c not in self._matched), key)
            for computation in a.computations():
                if computation not in self.computations and (found := others.get(key(computation))):
                    yield computation, found.pop(0)

    def _find_moved(self, a: HloModule, b: HloModule) -> None:
        """Pairs what is left in different computations: the same op and shape, and name if it has that, left once."""
        numbers = self._numbers

        def name(instruction: Instruction) -> Hashable:
            return numbers.op(instruction.op), instruction.shape.logical, instruction.name

        def op(instruction: Instruction) -> Hashable:
            return numbers.op(instruction.op), instruction.shape.logical

        for key in (name, op):
            sides = (a, self.of_a), (b, self.of_b)
            left = [[i for c in m.computations() for i in c.post_order() if i not in of] for m, of in sides]
            ours, theirs = (_groups((i for i in side if i.opcode != "parameter"), key) for side in left)
            for found in ours.values():
                there = theirs.get(key(found[0]), [])
                if len(found) == len(there) == 1:
                    self.pair(found[0], there[0])
                    self.moved.add(found[0])

    def pair(self, a: Instruction, b: Instruction) -> None:
        self.of_a[a] = b
        self.of_b[b] = a


class _Bodies:
    """Matches the instructions of two computations."""

    def __init__(self, matching: Matching, numbers: Numbering, a: Computation, b: Computation) -> None:
        self.matching = matching
        self.of_a, self.of_b = matching.of_a, matching.of_b
        self.numbers = numbers
        self.values = numbers.values
        self.a, self.b = a.post_order(), b.post_order()
        self.roots = a.root, b.root
        self.common = {self.values[i] for i in self.a} & {self.values[i] for i in self.b}
        self.below: dict[Instruction, int] = {}
        for order in (self.a, self.b):
            self._number_users(order)
        self.candidates: list[tuple[int, int, Instruction, Instruction]] = []
        self.number = count()

    def match(self) -> None:
        self._equal_values()
        self._suggest(*self.roots)
        self._parameters()
        for instruction in self.a:
            if instruction in self.of_a:
                self._suggest_neighbours(instruction, self.of_a[instruction])
        self._pair_candidates()
        before = -1
        while before != len(self.of_a):
            before = len(self.of_a)
            self._replaced()
            self._equal_values(ambiguous=True)
            self._pair_candidates()
            self._alike(lambda i: (i.name, i.opcode))
            self._alike(lambda i: (self.numbers.op(i.op), i.shape.logical))
            self._alike(lambda i: (i.opcode, i.shape.logical))
        self._exchange()

    def _number_users(self, order: Sequence[Instruction]) -> None:
        """`below`: equal numbers for instructions whose users are alike, with theirs, _DEPTH down: of the same op, and
        with the same other operands as far as both computations have their values."""
        number = self.numbers.number
        beside = {
            i: tuple([self.values[o] if self.values[o] in self.common else -1 for o in i.operands]) for i in order
        }
        levels = {i: number(("end", i is order[-1])) for i in order}
        for _ in range(_DEPTH):
            own = {i: number((self.numbers.op(i.op), i.shape.logical, beside[i], levels[i])) for i in order}
            for i in order:
                users = [(-1 if place is None else place, own[u]) for u, place in i.users.items()]
                levels[i] = number(("users", *sorted(users))) if len(users) <= _NEIGHBOURS else number(("many",))
        self.below.update(levels)

    # -- equal values

    def _equal_values(self, *, ambiguous: bool = False) -> None:
        """Pairs equal values, users first: where one is left in each, or with `ambiguous` any, by name or in order."""
        ours, theirs = (_groups(self._free(order), self.values.__getitem__) for order in (self.a, self.b))
        for number, group in reversed(ours.items()):
            others = theirs.get(number, [])
            if len(group) == len(others) == 1:
                self._pair_equal(group[0], others[0])
            elif others and ambiguous:
                self._pair_group(group, others)

    def _pair_group(self, group: list[Instruction], others: list[Instruction]) -> None:
        named = {i.name: i for i in others}
        for instruction in group:
            if instruction.name in named:
                self._pair_equal(instruction, named[instruction.name])
        rest = [i for i in others if i not in self.of_b]
        for instruction, other in zip([i for i in group if i not in self.of_a], rest, strict=False):
            self._pair_equal(instruction, other)
        for instruction in group:
            if instruction in self.of_a:
                self._suggest_neighbours(instruction, self.of_a[instruction])

    def _pair_equal(self, a: Instruction, b: Instruction) -> None:
        """Pairs two equal values and, as far as they are free, what they are made of."""
        stack = [(a, b)]
        while stack:
            a, b = stack.pop()
            if a not in self.of_a and b not in self.of_b:
                self.matching.pair(a, b)
                stack += zip(a.operands, b.operands, strict=True)

    # -- neighbours

    def _parameters(self) -> None:
        ours, theirs = ([i for i in self._free(order) if i.opcode == "parameter"] for order in (self.a, self.b))
        of_shape = _groups(theirs, lambda i: i.shape.logical)
        for instruction in ours:
            for other in of_shape.get(instruction.shape.logical, ())[:_NEIGHBOURS]:
                self._suggest(instruction, other)

    def _suggest_neighbours(self, a: Instruction, b: Instruction) -> None:
        shift = len(b.operands) - len(a.operands)
        for place, operand in enumerate(a.operands):
            for other in {place, place + shift}:
                if 0 <= other < len(b.operands):
                    self._suggest(operand, b.operands[other])
        users = self._free_users(b)
        for user in self._free_users(a) if users else ():
            for other in users:
                self._suggest(user, other)

    def _free_users(self, instruction: Instruction) -> list[Instruction]:
        taken = self.of_a if instruction in self.of_a else self.of_b
        found: list[Instruction] = []
        for user in instruction.users:
            if user not in taken:
                found.append(user)
                if len(found) == _NEIGHBOURS:
                    break
        return found

    def _suggest(self, a: Instruction, b: Instruction) -> None:
        if a not in self.of_a and b not in self.of_b and (a.opcode == b.opcode or self._has_taken_place(a, b)):
            heappush(self.candidates, (-self._likeness(a, b), next(self.number), a, b))

    def _has_taken_place(self, a: Instruction, b: Instruction) -> bool:
        """They have different opcodes, and the same shape, operands and kind of users."""
        if a.shape.logical is not b.shape.logical or "parameter" in (a.opcode, b.opcode):
            return False
        return self.below[a] == self.below[b] and self._same_operands(a, b)

    def _likeness(self, a: Instruction, b: Instruction) -> int:
        """Larger for a pair with more in common."""
        return (
            4 * (self.values[a] == self.values[b])
            + 2 * (self.numbers.op(a.op) == self.numbers.op(b.op))
            + 2 * (a.shape.logical is b.shape.logical)
            + 3 * self._same_operands(a, b)
            + self._has_rare_operand(a, b)
            + 3 * self._share_a_user(a, b)
            + 3 * (self.below[a] == self.below[b])
            + 2 * (a.name == b.name)
        )

    def _same_operands(self, a: Instruction, b: Instruction) -> bool:
        return len(a.operands) == len(b.operands) > 0 and all(map(self._corresponds, a.operands, b.operands))

    def _corresponds(self, a: Instruction, b: Instruction) -> bool:
        """A pair, or two free instructions of the same value."""
        other = self.of_a.get(a)
        return other is b or (other is None and self.values[a] == self.values[b] and b not in self.of_b)

    def _has_rare_operand(self, a: Instruction, b: Instruction) -> bool:
        """A pair with few users is an operand of both."""
        pairs = zip(a.operands, b.operands, strict=False)
        return any(self.of_a.get(x) is y and len(x.users) <= _FEW for x, y in pairs)

    def _has_same_operand(self, a: Instruction, b: Instruction) -> bool:
        return any(self.of_a.get(x) is y for x, y in zip(a.operands, b.operands, strict=False))

    def _share_a_user(self, a: Instruction, b: Instruction) -> bool:
        """A pair takes them at the same place."""
        if (a, b) == self.roots:
            return True
        for user in _some_users(a):
            other = self.of_a.get(user)
            if other is not None and other in b.users:
                place, there = a.users[user], b.users[other]
                if place == there or place is None or there is None:
                    return True
        return False

    def _pair_candidates(self) -> None:
        while self.candidates:
            _, _, a, b = heappop(self.candidates)
            if a not in self.of_a and b not in self.of_b:
                self.matching.pair(a, b)
                self._suggest_neighbours(a, b)

    # -- what is left

    def _replaced(self) -> None:
        """Pairs instructions of different opcodes of which one has taken the other's place: same shape and users, and
        an operand in common, or none at all."""
        for instruction in reversed(self.a):
            if instruction not in self.of_a:
                for other in self._in_its_place(instruction):
                    if self._has_same_operand(instruction, other) or not (instruction.operands or other.operands):
                        self.matching.pair(instruction, other)
                        self._suggest_neighbours(instruction, other)
                        self._pair_candidates()
                        break

    def _in_its_place(self, instruction: Instruction) -> list[Instruction]:
        """The free instructions of its shape that the counterparts of its users take in its place."""
        found: dict[Instruction, None] = {}
        if instruction is self.roots[0]:
            found[self.roots[1]] = None
        for user in _some_users(instruction):
            other = self.of_a.get(user)
            place = instruction.users[user]
            if other is not None and place is not None and place < len(other.operands):
                found[other.operands[place]] = None
        return [i for i in found if i not in self.of_b and i.shape.logical is instruction.shape.logical]

    def _alike(self, key: Callable[[Instruction], Hashable]) -> None:
        """Pairs what is left once in each with the same key."""
        ours, theirs = (_groups(self._free(order), key) for order in (self.a, self.b))
        for group in ours.values():
            others = theirs.get(key(group[0]), [])
            if len(group) == 1 and len(others) == 1:
                self._suggest(group[0], others[0])
                self._pair_candidates()

    # -- exchanges

    def _exchange(self) -> None:
        """Exchanges counterparts of alike instructions as long as fewer operands differ then: which of alike
        instructions come together is open when they are paired."""
        open_pairs = dict.fromkeys(i for i in self.a if self._operands_that_differ(i))
        for _ in range(4 * len(open_pairs)):
            if not open_pairs:
                return
            user = next(iter(open_pairs))
            del open_pairs[user]
            for place in self._operands_that_differ(user):
                around = self._exchanged(user.operands[place], self.of_a[user].operands[place])
                open_pairs |= dict.fromkeys(i for i in around if self._operands_that_differ(i))

    def _operands_that_differ(self, a: Instruction) -> list[int]:
        b = self.of_a.get(a)
        if b is None or len(a.operands) != len(b.operands):
            return []
        return [n for n, (x, y) in enumerate(zip(a.operands, b.operands, strict=True)) if self.of_a.get(x) is not y]

    def _exchanged(self, x: Instruction, z: Instruction) -> dict[Instruction, None]:
        """Pairs x with z, and what z was paired with, if anything, with what x was; then what does not agree with that
        around them, and so on. Keeps as many of these steps as lead to the fewest operands that differ, and gives what
        is around those."""
        done: list[tuple[Instruction, Instruction | None, Instruction, Instruction]] = []
        around: dict[Instruction, None] = {}
        cost, least, kept, kept_around = 0, 0, 0, 0
        waiting, seen = deque([(x, z)]), set[Instruction]()
        while waiting and len(done) < _LONGEST:
            x, z = waiting.popleft()
            y, w = self.of_a.get(x), self.of_b.get(z)
            if y is None or y is z or x in seen or w in seen or not self._are_alike(x, z):
                continue
            seen |= {x} if w is None else {x, w}
            near = dict.fromkeys(i for i in (x, w) if i is not None)
            near |= dict.fromkeys(u for i in list(near) for u in _some_users(i))
            cost -= sum(map(self._cost, near))
            self._set(x, w, z, y)
            cost += sum(map(self._cost, near))
            done.append((x, w, y, z))
            around |= near
            if cost < least:
                least, kept, kept_around = cost, len(done), len(around)
            waiting += self._that_disagree(x, z)
        for x, w, y, z in reversed(done[kept:]):
            self._set(x, w, y, z)
        return dict.fromkeys(islice(around, kept_around))

    def _that_disagree(self, x: Instruction, z: Instruction) -> Iterator[tuple[Instruction, Instruction]]:
        """The operands and users of a pair that are at the same place, and no pairs."""
        for pair in zip(x.operands, z.operands, strict=False):
            if self.of_a.get(pair[0]) is not pair[1]:
                yield pair
        theirs = _some_users(z)
        for user in _some_users(x):
            other = self.of_a.get(user)
            if other is None or z in other.operands:
                continue
            for there in theirs:
                w = self.of_b.get(there)
                if x.users[user] == z.users[there] and (w is None or x not in w.operands):
                    yield user, there

    def _are_alike(self, a: Instruction, b: Instruction) -> bool:
        return type(a.op) is type(b.op) and a.shape.logical is b.shape.logical

    def _set(self, x: Instruction, w: Instruction | None, of_x: Instruction, of_w: Instruction) -> None:
        """Pairs both; without `w`, what would be its counterpart is free."""
        self.matching.pair(x, of_x)
        if w is None:
            self.of_b.pop(of_w, None)
        else:
            self.matching.pair(w, of_w)

    def _cost(self, a: Instruction) -> int:
        b = self.of_a.get(a)
        if b is None:
            return 0
        return 2 * (self.numbers.op(a.op) != self.numbers.op(b.op)) + len(self._operands_that_differ(a))

    def _free(self, order: Sequence[Instruction]) -> list[Instruction]:
        taken = self.of_a if order is self.a else self.of_b
        return [i for i in order if i not in taken]


def _some_users(instruction: Instruction) -> list[Instruction]:
    return list(islice(instruction.users, _NEIGHBOURS))


def _groups(items: Iterable[_T], key: Callable[[_T], Hashable]) -> dict[Hashable, list[_T]]:
    groups: dict[Hashable, list[_T]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return groups
