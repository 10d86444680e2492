"""All findings in an HLO text: continues after instructions that break a rule, where the parser stops at the first."""

from __future__ import annotations

import re

from hlokit.errors import HlokitError, ParseError, ShapeError, VerifyError
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.hlo.op import OPS
from hlokit.hlo.verifier import verify
from hlokit.text.drafts import Body
from hlokit.text.lexer import END, Lexer
from hlokit.text.parser import Parser
from hlokit.text.shapes import read_shape
from hlokit.types.shape import ProgramShape

_MOST = 100
_INSTRUCTION = re.compile(r"[ \t]*(?:(?:ROOT[ \t]+)?%?[A-Za-z_][\w.\-]*[ \t]*=[ \t]|\})")
_HEAD = re.compile(r"(ROOT\s+)?%?([A-Za-z_][\w.\-]*)\s*=\s")
_NAME = re.compile(r"(?:ENTRY\s+)?%?([\w.\-]*)")
_COMPUTATION = re.compile(r"^[ \t]*(?:ENTRY\b|%?[A-Za-z_][\w.\-]*[ \t]*(?:\(.*)?\{[ \t]*$)", re.MULTILINE)


def findings(text: str) -> list[ParseError]:
    """All findings on an HLO text, in the order in which they are found; empty for a legal one.

    An instruction that breaks a rule stands for a value of the shape that is written there, so that what uses it is
    checked; errors that only follow from others are left out. At most 100 are given.
    """
    found: list[ParseError] = []
    try:
        finder = _Finder(Lexer(text), found)
        module = finder.module()
        if not found:
            verify(module)
    except _Enough:
        pass
    except VerifyError as error:
        found += [ParseError(finding) for finding in error.findings]
    except ParseError as error:  # of what nothing can be read behind
        if not found:
            found.append(error)
    except ShapeError as error:  # of a part that stands alone
        found.append(ParseError(str(error), label=error.label))
    return found


class _Enough(Exception):
    pass


class _Finder(Parser):
    def __init__(self, lexer: Lexer, found: list[ParseError]) -> None:
        super().__init__(lexer, verify=True)
        self.found = found
        self.unknown: set[str] = set()
        """Names of what could not be read."""
        self.incomplete: set[str] = set()
        """Names of computations that an instruction is missing from, or has another form in."""

    def report(self, error: ParseError | ShapeError) -> None:
        if isinstance(error, ShapeError):
            error = self.lexer.error(str(error), error.label)
        self.found.append(error)
        if len(self.found) >= _MOST:
            raise _Enough

    def read_header(self) -> HloModule:
        try:
            return super().read_header()
        except (ParseError, ShapeError) as error:
            self.report(error)
            self._go_on(_COMPUTATION)
            return HloModule("m")

    def _finished(self, module: HloModule, entry: Computation) -> HloModule:
        if not self.found:
            return super()._finished(module, entry)
        return module

    def _computation(self) -> Computation:
        lexer = self.lexer
        start, depth = lexer.start, lexer.depth
        try:
            return super()._computation()
        except (ParseError, ShapeError) as error:
            head = _NAME.match(lexer.text, start)
            name = head[1] if head is not None else ""
            follows = lexer.kind == END if error.label != "HCOMP-5" else name in self.incomplete
            if not (follows and self.found):
                self.report(error)
            lexer.depth = depth
            self.unknown.add(name)
            self._go_on(_COMPUTATION, max(lexer.start, start + 1))
            return self.computations[-1] if self.computations else Computation(name)

    def _check_body(self, body: Body, signature: ProgramShape | None, start: int) -> None:
        if body.computation.name in self.incomplete:
            return
        try:
            super()._check_body(body, signature, start)
        except ParseError as error:
            self.report(error)

    def _instruction(self, body: Body) -> None:
        lexer = self.lexer
        start, depth = lexer.start, lexer.depth
        before = len(body.computation)
        try:
            super()._instruction(body)
            return
        except (ParseError, ShapeError) as error:
            if lexer.kind == END and lexer.start == start:
                raise
            if not self._follows(error):
                self.report(error)
        lexer.depth = depth
        self.incomplete.add(body.computation.name)
        self._stand_in(body, start, before)
        self._go_on(_INSTRUCTION, start + 1)

    def _follows(self, error: ParseError | ShapeError) -> bool:
        """Whether an error only says that something is unknown which could not be read."""
        return isinstance(error, ParseError) and any(f" {name} " in f"{error.message} " for name in self.unknown)

    def _stand_in(self, body: Body, start: int, before: int) -> None:
        """Puts a value of the shape that is written in the place of an instruction; its name is unknown without."""
        head = _HEAD.match(self.lexer.text, start)
        if head is None or head[2] in body.names:
            return
        instruction: Instruction | None = None
        added = body.computation.instructions[before:]
        if added and added[-1].name == head[2]:
            instruction = added[-1]
        else:
            try:
                shape = read_shape(Lexer(self.lexer.text, head.end()))
                op = OPS["custom-call"](custom_call_target="unknown", output_shape=shape)
                instruction = body.computation.add(op, (), shape=shape, name=head[2])
            except HlokitError:
                self.unknown.add(head[2])
        if instruction is not None:
            body.names[head[2]] = instruction
            body.starts[head[2]] = start
            if head[1] and body.root is None:
                body.root = instruction

    def _go_on(self, pattern: re.Pattern[str], start: int | None = None) -> None:
        """Goes to the next line that begins as the pattern says, or to the end of the text."""
        lexer = self.lexer
        position = lexer.text.find("\n", lexer.start if start is None else start)
        while position >= 0:
            if pattern.match(lexer.text, position + 1):
                try:
                    lexer.jump(position + 1)
                    return
                except ParseError as error:
                    self.report(error)
            position = lexer.text.find("\n", position + 1)
        lexer.jump(len(lexer.text))
