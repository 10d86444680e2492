"""The errors of hlokit, one class per audience. All derive from HlokitError."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hlokit import rules


class HlokitError(Exception):
    """The base class of every error that hlokit raises deliberately.

    A traceback ends with the text of each rule that the message names by its label, if that text is short;
    `hlokit.explain` returns the text of any rule. Control characters in messages are replaced by visible symbols,
    because messages quote names and text of programs, which could contain control sequences for the terminal.

    To fix it: see the page of the subclass that was raised. Another kind of exception (an AssertionError, a KeyError)
    that hlokit raises for arguments of the right types is a fault of hlokit.

    Attributes
    ----------
    file : str
        The file that the error concerns, with which the text begins; empty if there is none.

    Examples
    --------
    >>> b = hk.Builder()
    >>> try:
    ...     hk.add(b.parameter(0, hk.f32[2, 3]), b.parameter(1, hk.f32[3]))
    ... except hk.HlokitError as error:
    ...     print(type(error).__name__)
    ShapeError
    """

    file = ""

    @property
    def __notes__(self) -> list[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The notes of PEP 678; those of the rules are made when they are first asked for."""
        if "_notes" not in vars(self):
            labels = re.findall(rf"\[({rules.LABEL.pattern})\]", str(self))
            self._notes = rules.sentences(labels)
        return self._notes

    def __str__(self) -> str:
        return visible(f"{self.file}: {self._message()}" if self.file else self._message())

    def _message(self) -> str:
        return super().__str__()


class ShapeError(HlokitError):
    """An op, a type or a literal breaks a rule of the language.

    To fix it: write the call that the message suggests, or change the argument that it names as the rule requires;
    `hk.explain(error.label)` shows the rule. The message ends with the line of your code that created the op.

    Attributes
    ----------
    label : str
        The rule's label, such as "TRANSP-3".
    argument : str
        The argument that breaks it.
    found, expected : object
        The value of the argument, and the value that the rule requires.
    instead : str
        A similar call that is correct, if there is one; else empty.
    op : str or None
        The opcode or function.
    operands : sequence
        The shapes of its operands.
    location : str or None
        The file and line of the call, if they are known.

    Examples
    --------
    >>> b = hk.Builder()
    >>> try:
    ...     hk.add(b.parameter(0, hk.f32[2, 3]), b.parameter(1, hk.f32[3]))
    ... except hk.ShapeError as error:
    ...     print(str(error).partition(" at ")[0])
    add(f32[2,3], f32[3]): operands: found {f32[2,3],f32[3]}, expected equal ranks, a scalar, or
    broadcast_dimensions: write hk.add(x, y, [1]) [BCAST-3]
    """

    def __init__(self, label: str, argument: str, found: object, expected: object, instead: str = "") -> None:
        super().__init__(label, argument, found, expected, instead)
        self.label = label
        self.argument = argument
        self.found = found
        self.expected = expected
        self.instead = instead
        self.op: str | None = None
        self.operands: Sequence[object] = ()
        self.location: str | None = None

    def _message(self) -> str:
        where = f" at {self.location}" if self.location else ""
        op = f"{self.op}({', '.join(map(str, self.operands))}): " if self.op else ""
        instead = f": write {self.instead}" if self.instead else ""
        return (
            f"{op}{self.argument}: found {_brief(self.found)}, expected {_brief(self.expected)}{instead} "
            f"[{self.label}]{where}"
        )


class BuildError(HlokitError):
    """A builder is used incorrectly: a handle of another builder or a stale one, a repeated parameter number, no root.

    To fix it: create all operands with one builder, add no ops after `build`, number parameters 0, 1, 2, ... once each,
    and register custom calls under names that are not in use.

    Attributes
    ----------
    label : str or None
        The rule's label.
    function : str
        The function that was called, if the message does not name it; else empty.

    Examples
    --------
    >>> b = hk.Builder()
    >>> x = b.parameter(0, hk.f32)
    >>> try:
    ...     b.parameter(0, hk.f32)
    ... except hk.BuildError as error:
    ...     print(error)
    parameter number 0 is taken [BUILDER-6]
    """

    def __init__(self, message: str, label: str | None = None) -> None:
        super().__init__(f"{message} [{label}]" if label else message)
        self.label = label
        self.function = ""

    def _message(self) -> str:
        message = super()._message()
        return f"{self.function}: {message}" if self.function and self.function not in message else message


class MissingNameError(BuildError, AttributeError):
    """A handle, or hlokit, has no attribute of this name: `x.sum()`, `hk.float32`. It is an AttributeError too.

    To fix it: write what the message says instead.

        >>> try:
        ...     hk.float32
        ... except hk.MissingNameError as error:
        ...     print(error)
        hlokit has no 'float32': write hk.f32
    """


class MisuseError(BuildError, TypeError):
    """A value is used as something else: an array as a tuple, a module as a function. It is a TypeError too.

    To fix it: write what the message says instead.

        >>> b = hk.Builder()
        >>> module = b.build(b.constant(1.0))
        >>> try:
        ...     module()
        ... except hk.MisuseError as error:
        ...     print(error)
        <HloModule main: () -> f32[], 1 computation> is a program, not a function: write hk.evaluate(m, ...) or
        hk.compile(m)(...)
    """


class ParseError(HlokitError):
    """Text or bytes that are not a module.

    To fix it: change the text where the caret points. If a rule rejects a program from XLA, read it with `verify=False`
    to inspect it; if XLA itself accepts the program, please report it.

    Attributes
    ----------
    message : str
        The message without the position.
    line, column : int
        The position, both counted from 1; 0 if there is none.
    source_line : str
        The text of the line.
    label : str or None
        The rule's label.
    is_syntax : bool
        Whether the text breaks the grammar, so that it cannot be read at all.
    kind : str
        The kind of the file, if it is recognised and contains no program ("LLVM IR"); else empty.

    Examples
    --------
    >>> try:
    ...     hk.parse("HloModule m\\nENTRY e { ROOT x = f32[2] nonsense() }")
    ... except hk.ParseError as error:
    ...     print(error)
    line 2, column 27: unknown opcode 'nonsense' [HINST-6]
      ENTRY e { ROOT x = f32[2] nonsense() }
                                ^
    """

    is_syntax = False
    kind = ""

    def __init__(
        self, message: str, *, line: int = 0, column: int = 0, source_line: str = "", label: str | None = None
    ) -> None:
        self.message = message
        self.line = line
        self.column = column
        self.source_line = source_line
        self.label = label
        super().__init__(message)

    def _message(self) -> str:
        label = f" [{self.label}]" if self.label and f"[{self.label}]" not in self.message else ""
        if not self.line:
            return f"{self.message}{label}"
        shown, caret = _excerpt(self.source_line, self.column)
        return f"line {self.line}, column {self.column}: {self.message}{label}\n  {shown}\n  {caret}"


class VerifyError(HlokitError):
    """A module breaks rules of the language.

    To fix it: change the program where each finding says. If `after` names a pass of hlokit, the pass is at fault.

    Attributes
    ----------
    findings : list of str
        The rules that are broken, one text each, with the instruction and the rule's label.
    after : str or None
        The pass after which they were broken; None for the module as it was given.

    Examples
    --------
    >>> module = hk.parse("HloModule m\\nENTRY e { ROOT x = f32[2] parameter(0) }")
    >>> module.entry.root.shape = hk.TOKEN
    >>> try:
    ...     hk.verify(module)
    ... except hk.VerifyError as error:
    ...     print(error.findings[0])
    e: x: has shape token[], its op gives f32[2] [HINST-2]
    """

    def __init__(self, findings: Sequence[str], after: str | None = None) -> None:
        self.findings = list(findings)
        self.after = after
        super().__init__(findings)

    def _message(self) -> str:
        head = f"{len(self.findings)} finding{'s' if len(self.findings) != 1 else ''}"
        if self.after:
            head += f" after {self.after}"
        shown = self.findings[:20]
        if len(self.findings) > len(shown):
            shown = [*shown, f"... and {len(self.findings) - len(shown)} more"]
        return head + "".join(f"\n  {finding}" for finding in shown)


class UnsupportedError(HlokitError):
    """A legal feature that hlokit or this backend does not support. The message names the op, the type and the backend.

    To fix it: see the alternatives in the message, e.g. the known targets, or register the function that a custom call
    names. The documentation of each area lists what hlokit does not support.

        >>> module = hk.parse("HloModule m\\nENTRY e { ROOT x = f32[2] parameter(0) }")
        >>> try:
        ...     hk.compile(module, "gpu")
        ... except hk.UnsupportedError as error:
        ...     print(error)
        compile(backend='gpu'): the only backend is 'cpu'
    """


class UnknownTargetError(UnsupportedError):
    """The target of a custom-call that is run is not registered.

    To fix it: register a function under that name, with `hk.register_custom_call` or the function that the message
    names.

        >>> b = hk.Builder()
        >>> module = b.build(hk.custom_call(b, "nowhere", [], hk.f32[2]))
        >>> try:
        ...     hk.evaluate(module)
        ... except hk.UnknownTargetError as error:
        ...     print(error)
        custom-call: no target 'nowhere' is registered for hlokit; register_custom_call adds one [CCALL-4]
    """


class ArgumentError(HlokitError):
    """Arguments or options of a call are not valid.

    To fix it: pass one argument for each parameter, with its element type and sizes, or an option within the bounds
    that the message states. `print(module)` shows the parameters.

        >>> module = hk.parse("HloModule m\\nENTRY e { ROOT x = f32[2] parameter(0) }")
        >>> try:
        ...     hk.evaluate(module)
        ... except hk.ArgumentError as error:
        ...     print(error)
        m takes 1 argument, got 0 [EXEC-3]
    """


class EvaluationError(HlokitError):
    """A program failed while it ran: an empty infeed, a size out of range, an error in a custom call.

    To fix it: provide what the program needs (items of the infeed, sizes within their bounds), or fix the function that
    the message names.

    Attributes
    ----------
    located : bool
        Whether the message names the instruction.

    Examples
    --------
    >>> b = hk.Builder()
    >>> module = b.build(hk.infeed(b, hk.f32[2]))
    >>> try:
    ...     hk.evaluate(module)
    ... except hk.EvaluationError as error:
    ...     print(error)
    infeed.2: infeed: the queue is empty and nothing can arrive [INFEED-9]
    """

    located = False


class HandlerError(EvaluationError):
    """A handler of XLA's FFI returned an error.

    To fix it: see the message, which is that of the handler.

    Attributes
    ----------
    code : str
        The kind of error, by its name in absl ("INVALID_ARGUMENT").

    Examples
    --------
    >>> error = hk.HandlerError("no such table", "NOT_FOUND")
    >>> print(error, error.code)
    no such table NOT_FOUND
    """

    def __init__(self, message: str, code: str = "UNKNOWN") -> None:
        super().__init__(message, code)
        self.code = code

    def __str__(self) -> str:
        return str(self.args[0])


class OutOfMemoryError(EvaluationError, MemoryError):
    """Running or compiling a program needs more memory than is available or allowed.

    To fix it: `exe.memory_analysis()` of a smaller program of the same form shows which instructions use the memory;
    `donate=` lets results overwrite arguments; `memory_limit=` sets another limit.

        >>> module = hk.parse("HloModule m\\nENTRY e { ROOT x = f32[1000] iota(), iota_dimension=0 }")
        >>> try:
        ...     hk.evaluate(module, memory_limit=100)
        ... except MemoryError as error:
        ...     print(error)
        x: f32[1000] takes 4000 bytes, more than the limit of 100
    """


class DeadlockError(EvaluationError):
    """Devices wait for each other, or for one that has finished, and none can continue (GRP-8, COMM-12).

    To fix it: make all devices of a group reach the same collectives in the same order, and give every recv its send.

    Attributes
    ----------
    waits : list of (str, str, sequence of str)
        For each device that waits: its name, the instruction's, and the names of the devices that it waits for.

    Examples
    --------
    >>> b = hk.Builder("waits")
    >>> data, token = hk.recv_with_token(hk.create_token(b), hk.s32[2], hk.ChannelHandle(1))
    >>> try:
    ...     hk.evaluate_mpmd([(b.build(data), [])])
    ... except hk.DeadlockError as error:
    ...     print(error)
    deadlock: no device can continue [COMM-12]
      replica 0 waits at recv-done.3 in waits, channel 1, for a device that does not exist
    """

    located = True

    def __init__(self, message: str, waits: Sequence[tuple[str, str, Sequence[str]]] = ()) -> None:
        super().__init__(message)
        self.waits = list(waits)


class ShadowMismatch(HlokitError):
    """Shadow mode found a kernel whose result differs from the interpreter's.

    To fix it: this is a fault of hlokit, or a custom call that is not a function of its operands. Please report it
    with the reproducer.

    Attributes
    ----------
    instructions : list of str
        The names of the instructions that the kernel computes.
    result : str
        The name of the instruction whose value differs.
    index : tuple of int
        The index of the first element that differs.
    found, expected : object
        The two values of this element: the kernel's, and the interpreter's.
    count : int
        The number of elements that differ.
    reproducer : path
        The file with the HLO of these instructions; next to it is an .npz with the operands and the kernel's results.
    run : int
        The number of earlier runs of the kernel since the program was compiled.

    Examples
    --------
    >>> print(hk.ShadowMismatch(["add.3"], "add.3", (0,), 1.5, 2.5, 1, "add.3.hlo"))
    add.3[0]: the kernel gave 1.5, the interpreter 2.5; 1 elements differ
      instructions: add.3
      reproducer: add.3.hlo
    """

    def __init__(
        self,
        instructions: Sequence[str],
        result: str,
        index: tuple[int, ...],
        found: object,
        expected: object,
        count: int,
        reproducer: object,
        run: int = 0,
    ) -> None:
        super().__init__(instructions, result, index)
        self.run = run
        self.instructions = list(instructions)
        self.result = result
        self.index = index
        self.found = found
        self.expected = expected
        self.count = count
        self.reproducer = reproducer

    def _message(self) -> str:
        names = ", ".join(self.instructions[:12]) + (", ..." if len(self.instructions) > 12 else "")
        return (
            f"{self.result}{list(self.index)}: the kernel gave {self.found!r}, the interpreter {self.expected!r}; "
            f"{self.count} elements differ\n  instructions: {names}\n  reproducer: {self.reproducer}"
        )


_VISIBLE = {
    **{code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"},  # U+2400 SYMBOL FOR NULL, ...
    127: 0x2421,
    **dict.fromkeys(range(128, 160), 0xFFFD),
    **dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD),  # these reverse what follows
    **dict.fromkeys(range(0xD800, 0xE000), 0xFFFD),  # no text can hold these
}
"""Characters shown in place of those that a terminal would act on; each for one, so that carets stay in place."""


def visible(text: str) -> str:
    """`text` with pictures for the control characters in it, line ends and tabs aside."""
    return text.translate(_VISIBLE)


def _brief(value: object) -> str:
    """`value` as text that fits on a line; tuples print as HLO lists."""
    if isinstance(value, (tuple, list)):
        text = "{" + ",".join(map(str, value)) + "}"  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    else:
        text = str(value)
    return text if len(text) <= 200 else f"{text[:197]}..."


def _excerpt(line: str, column: int) -> tuple[str, str]:
    """An excerpt of `line` around `column`, of at most 100 characters, and a line with a caret below that column."""
    start = max(0, min(column - 60, len(line) - 100))
    shown = line[start : start + 100].replace("\t", " ")
    return shown, " " * (column - 1 - start) + "^"


class UnreadFieldsWarning(UserWarning):
    """A proto has fields that hlokit does not read, so their content is missing in the module.

    These are fields of newer protos, and a few that hlokit ignores, such as prefetches of arguments; the warning names
    them. To turn it into an error: `warnings.simplefilter("error", hk.UnreadFieldsWarning)`.

        >>> import warnings
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("error", hk.UnreadFieldsWarning)
        ...     print(hk.parse("HloModule m\\nENTRY e { ROOT x = f32[] parameter(0) }").name)
        m
    """
