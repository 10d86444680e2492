"""The debugger's commands: lines of text from the terminal or a script."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from hlokit.debugger.conditions import named
from hlokit.debugger.debugger import Debugger, Stop
from hlokit.debugger.describe import (
    listing_text,
    origin_text,
    place_text,
    stack_text,
    tree_text,
    users_text,
    value_text,
    way_text,
)
from hlokit.debugger.numbers import KINDS
from hlokit.debugger.saved import save
from hlokit.debugger.way_back import way_back
from hlokit.errors import ArgumentError

HELP = """\
step, s             run the next instruction, including everything it calls
into, i             enter the computation that the next instruction calls
out, o              run to the end of this computation
run, r [CONDITION]  run to the next breakpoint, or until CONDITION holds
back, b             undo the last instruction
back-into, bi       undo the last event, entering what the last instruction called
back-out, bo        go back to the instruction that called this computation
run-back, rb [CONDITION]   go back to the last breakpoint, or until CONDITION holds
go TIME             go back to an earlier time
break [CONDITION]   stop whenever CONDITION holds; without one, list the breakpoints
remove NUMBER       remove a breakpoint
print, p NAME       show an instruction's value, or a part of it: print NAME[1:3, 0]
watch NAME          show the value after every command; unwatch NAME stops that
from NAME [LEVELS]  show where a value comes from: its operands, their operands, and so on
why nan             at the end: trace a NaN in the result back to its origin; also why inf
to NAME             show the instructions that use it
source NAME         show its scope and source lines
set NAME = VALUE    replace a value with a number or lists of numbers
list, l [LINES]     show the instructions around this one
where, w            show the stack of computations
device [NUMBER]     choose a device; without a number, show what the others wait for
save FILE           save the program, its arguments, and this place
help, quit

CONDITION: an instruction's name; nan, inf, denormal; ulps:1000; opcode:dot; line:train.py:12; scope:layer/norm;
iteration:while.3:5; if EXPRESSION of value, operands, name, opcode, shape, iteration, np"""


class Session:
    """A debugger and what is watched. `execute` takes a line and gives what there is to say."""

    def __init__(self, debugger: Debugger) -> None:
        self.debugger = debugger
        self.watched: list[str] = []
        self.is_over = False
        self._moves: dict[str, Callable[[], Stop]] = {
            "step": debugger.step, "s": debugger.step, "into": debugger.into, "i": debugger.into,
            "out": debugger.out, "o": debugger.out, "back": debugger.back, "b": debugger.back,
            "back-into": debugger.back_into, "bi": debugger.back_into,
            "back-out": debugger.back_out, "bo": debugger.back_out,
        }  # fmt: skip
        self._others: dict[str, Callable[[str], str]] = {
            "run": self._run, "r": self._run, "run-back": self._run_back, "rb": self._run_back, "go": self._go,
            "break": self._break, "remove": self._remove, "print": self._print, "p": self._print,
            "watch": self._watch, "unwatch": self._unwatch, "from": self._from, "to": self._to, "why": self._why,
            "source": self._source, "set": self._set, "list": self._list, "l": self._list, "where": self._where,
            "w": self._where, "device": self._device, "save": self._save, "help": self._help, "quit": self._quit,
            "q": self._quit,
        }  # fmt: skip

    @property
    def names(self) -> list[str]:
        """The names of all commands."""
        return [*self._moves, *self._others]

    def execute(self, line: str) -> str:
        """Does what a line says; gives what there is to print. ArgumentError for what is not a command."""
        word, _, rest = line.strip().partition(" ")
        if not word:
            return ""
        if word in self._moves:
            if rest.strip():
                raise ArgumentError(f"{word} takes nothing: found {rest.strip()!r}")
            return self._moved(self._moves[word]())
        if word not in self._others:
            close = " or ".join(get_close_matches(word, self.names, 3))
            advice = f"did you mean {close}?" if close else "help lists them"
            raise ArgumentError(f"{word!r} is not a command: {advice}")
        return self._others[word](rest.strip())

    def _moved(self, stop: Stop) -> str:
        lines = [stop.text] if stop.text and stop.kind != "end" else []
        if self.debugger.devices > 1:
            lines.append(f"device {self.debugger.device}")
        lines.append(place_text(self.debugger))
        if self.debugger.is_finished:
            lines.append(value_text("result", self.debugger.result))
        for name in self.watched:
            try:
                lines.append(value_text(f"%{name}", self.debugger.value(name)))
            except ArgumentError:
                lines.append(f"%{name}: not here")
        return "\n".join(lines)

    def _run(self, rest: str) -> str:
        return self._moved(self.debugger.run(rest or None))

    def _run_back(self, rest: str) -> str:
        return self._moved(self.debugger.run_back(rest or None))

    def _go(self, rest: str) -> str:
        return self._moved(self.debugger.go(_integer("go", rest)))

    def _break(self, rest: str) -> str:
        if not rest:
            return "\n".join(map(str, self.debugger.breakpoints)) or "no breakpoints"
        return f"breakpoint {self.debugger.break_at(rest)}"

    def _remove(self, rest: str) -> str:
        self.debugger.remove(_integer("remove", rest))
        return ""

    def _print(self, rest: str) -> str:
        name, bracket, index = rest.partition("[")
        value: Any = self.debugger.value(name)
        if not bracket:
            return value_text(rest, value)
        try:
            part = value[_index(bracket + index)]
        except (IndexError, TypeError, ValueError, SyntaxError) as error:
            raise ArgumentError(f"{rest}: is not a part of {name}: {error}") from None
        return value_text(rest, np.asarray(part) if not isinstance(part, tuple) else part, whole=True)

    def _watch(self, rest: str) -> str:
        name = named(self.debugger.module, rest).name
        if name not in self.watched:
            self.watched.append(name)
        return ""

    def _unwatch(self, rest: str) -> str:
        name = rest.removeprefix("%")
        if name not in self.watched:
            raise ArgumentError(f"%{name} is not watched")
        self.watched.remove(name)
        return ""

    def _from(self, rest: str) -> str:
        name, _, levels = rest.partition(" ")
        return tree_text(self.debugger, name, _integer("from", levels) if levels else 2)

    def _why(self, rest: str) -> str:
        if rest not in KINDS:
            raise ArgumentError(f"why {rest}: expected {', '.join(KINDS)}")
        if not self.debugger.is_finished:
            raise ArgumentError("why: the program has not finished: use run first")
        crumbs = way_back(self.debugger, rest)
        return f"{way_text(crumbs)}\n{place_text(self.debugger)}" if crumbs else f"the result has no {KINDS[rest][1]}"

    def _to(self, rest: str) -> str:
        instruction = named(self.debugger.module, rest)
        return users_text(instruction.name, instruction)

    def _source(self, rest: str) -> str:
        return origin_text(named(self.debugger.module, rest))

    def _set(self, rest: str) -> str:
        name, equals, text = rest.partition("=")
        if not equals:
            raise ArgumentError(f"set {rest}: expected set NAME = VALUE")
        try:
            value: Any = ast.literal_eval(text.strip())
        except (ValueError, SyntaxError):
            if text.strip() not in ("nan", "inf", "-inf"):
                raise ArgumentError(f"{text.strip()}: is not a number or lists of numbers") from None
            value = float(text)
        self.debugger.change(name.strip(), value)
        return place_text(self.debugger)

    def _list(self, rest: str) -> str:
        return listing_text(self.debugger, _integer("list", rest) if rest else 5)

    def _where(self, rest: str) -> str:
        return stack_text(self.debugger)

    def _device(self, rest: str) -> str:
        if rest:
            self.debugger.select(_integer("device", rest))
            return place_text(self.debugger)
        own = f"device {self.debugger.device} of {self.debugger.devices}"
        return "\n".join([own, *self.debugger.waiting])

    def _save(self, rest: str) -> str:
        words = shlex.split(rest)
        if len(words) != 1:
            raise ArgumentError("save takes the name of a file")
        save(self.debugger, Path(words[0]), self.watched)
        return f"saved: hlokit debug {words[0]} goes on here"

    def _help(self, rest: str) -> str:
        return HELP

    def _quit(self, rest: str) -> str:
        self.is_over = True
        return ""


def _integer(command: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ArgumentError(f"{command}: {text!r} is not a number") from None


def _index(text: str) -> Any:
    """The index that a text in brackets says: numbers, slices and dots."""
    tree = ast.parse(f"_{text}", mode="eval").body
    if not isinstance(tree, ast.Subscript) or not isinstance(tree.value, ast.Name):
        raise ValueError("expected one pair of brackets")
    parts = tree.slice.elts if isinstance(tree.slice, ast.Tuple) else [tree.slice]
    return tuple(map(_part, parts))


def _part(tree: ast.expr) -> Any:
    if isinstance(tree, ast.Slice):
        bounds = [None if bound is None else ast.literal_eval(bound) for bound in (tree.lower, tree.upper, tree.step)]
        return slice(*bounds)
    return ast.literal_eval(tree)
