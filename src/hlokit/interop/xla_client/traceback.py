"""Traceback: where Python was when a buffer or an executable was made. It holds code, not the frames' variables."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType, FunctionType, TracebackType

_OWN = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
"""The folder of hlokit's code, whose frames are left out."""


@dataclass(frozen=True)
class Frame:
    """A call in a stack.

    Parameters
    ----------
    file_name : str
        The file.
    function_name : str
        The function.
    function_start_line : int
        The line of the function's `def`.
    line_num : int
        The line that ran.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.Frame("model.py", "layer", 10, 12)
    layer;model.py:12
    """

    file_name: str
    function_name: str
    function_start_line: int
    line_num: int

    def __repr__(self) -> str:
        return f"{self.function_name};{self.file_name}:{self.line_num}"


class Traceback:
    """The call stack, the innermost call first. `Traceback.enabled = False` turns its recording off.

    Parameters
    ----------
    codes : sequence of code objects
        The functions that were active.
    instructions : sequence of int
        The offset of the instruction at which each of them was.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.Traceback.get_traceback().frames[0].line_num
    1
    """

    __slots__ = ("_codes", "_instructions")
    enabled = True

    def __init__(self, codes: Sequence[CodeType], instructions: Sequence[int]) -> None:
        self._codes = tuple(codes)
        self._instructions = tuple(instructions)

    @staticmethod
    def get_traceback() -> Traceback | None:
        """The stack of the caller, without hlokit's own calls.

        Returns
        -------
        Traceback or None
            None if recording is turned off.
        """
        if not Traceback.enabled:
            return None
        frame: FrameType | None = sys._getframe()  # pyright: ignore[reportPrivateUsage]
        while frame is not None and frame.f_code.co_filename.startswith(_OWN):
            frame = frame.f_back
        codes: list[CodeType] = []
        instructions: list[int] = []
        while frame is not None:
            codes.append(frame.f_code)
            instructions.append(frame.f_lasti)
            frame = frame.f_back
        return Traceback(codes, instructions)

    @property
    def frames(self) -> list[Frame]:
        """The calls, the innermost first."""
        return [
            Frame(code.co_filename, code.co_name, code.co_firstlineno, self.code_addr2line(code, instruction))
            for code, instruction in zip(self._codes, self._instructions, strict=True)
        ]

    def raw_frames(self) -> tuple[list[CodeType], list[int]]:
        """The calls as code objects and offsets, the innermost first.

        Returns
        -------
        (list of code objects, list of int)
            The functions, and the offset of the instruction at which each of them was.
        """
        return list(self._codes), list(self._instructions)

    def as_python_traceback(self) -> TracebackType | None:
        """The stack as Python's module `traceback` takes it, the outermost call first.

        Returns
        -------
        traceback or None
            Its frames have no variables. None if the stack is empty.
        """
        return self.traceback_from_frames(self.frames)

    @staticmethod
    def traceback_from_frames(frames: Sequence[Frame]) -> TracebackType | None:
        """Calls as Python's module `traceback` takes them, the outermost first.

        Parameters
        ----------
        frames : sequence of Frame
            The calls, the innermost first.

        Returns
        -------
        traceback or None
            Its frames have no variables. None if there are no calls.
        """
        found: TracebackType | None = None
        for frame in frames:
            found = TracebackType(found, _python_frame(frame), -1, frame.line_num)
        return found

    @staticmethod
    def code_addr2line(code: CodeType, lasti: int) -> int:
        """The line of an instruction.

        Parameters
        ----------
        code : code object
            The function.
        lasti : int
            The offset of the instruction.

        Returns
        -------
        int
            The line.
        """
        line = code.co_firstlineno
        for start, end, number in code.co_lines():
            if start <= lasti < end and number is not None:
                line = number
        return line

    @staticmethod
    def code_addr2location(code: CodeType, lasti: int) -> tuple[int, int, int, int]:
        """The place of an instruction in its file.

        Parameters
        ----------
        code : code object
            The function.
        lasti : int
            The offset of the instruction.

        Returns
        -------
        (int, int, int, int)
            Start line, start column, end line, end column; 0 where unknown.
        """
        place = list(code.co_positions())[lasti // 2]
        line, end_line, column, end_column = (number or 0 for number in place)
        return line, column, end_line, end_column

    def __str__(self) -> str:
        return "\n".join(f"{f.file_name}:{f.line_num} ({f.function_name})" for f in self.frames)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Traceback):
            return NotImplemented
        return (self._codes, self._instructions) == (other._codes, other._instructions)

    def __hash__(self) -> int:
        return hash((self._codes, self._instructions))


def _frame_of_its_own() -> FrameType:
    return sys._getframe()  # pyright: ignore[reportPrivateUsage]


def _python_frame(frame: Frame) -> FrameType:
    """A frame object that says it is this frame."""
    code = _frame_of_its_own.__code__.replace(
        co_filename=frame.file_name,
        co_name=frame.function_name,
        co_qualname=frame.function_name,
        co_firstlineno=frame.function_start_line,
    )
    return FunctionType(code, {"sys": sys})()


@contextmanager
def tracebacks(enabled: bool = True) -> Generator[None]:
    """A context in which tracebacks are recorded, or not.

    Parameters
    ----------
    enabled : bool, optional
        Whether they are recorded.

    Returns
    -------
    context manager
        It has no value, and restores the setting.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> with xc.tracebacks(False):
    ...     print(xc.Traceback.get_traceback())
    None
    """
    saved = Traceback.enabled
    Traceback.enabled = enabled
    try:
        yield
    finally:
        Traceback.enabled = saved
