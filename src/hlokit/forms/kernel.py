"""The kernel form: a routine of the backend, with the loops that may be fused with it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kernel:
    """A routine by name; its arguments are the op's attributes, its data the op's operands and result.

    prologue   operands that the routine asks for element by element, each a bounded number of times: what makes them
               may be fused into it. The others it needs in memory
    epilogue   results of which the routine hands over each element once: what uses them there may be fused into it
    functions  roles of the computations it calls on scalars
    whole      dimensions, counted from the last (-1), of which the routine needs all in every array; along the others,
               which all its arrays share, it works on each index by itself. None: it needs all of everything
    """

    routine: str
    prologue: tuple[int, ...] = ()
    epilogue: tuple[int, ...] = ()
    functions: tuple[str, ...] = ()
    whole: tuple[int, ...] | None = None
