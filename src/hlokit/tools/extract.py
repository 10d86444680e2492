"""hlokit extract: a program of one instruction."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from hlokit.api import verify
from hlokit.files.arrays import npz_of
from hlokit.hlo.computation import counted
from hlokit.judge.extract import extracted
from hlokit.tools.files import loaded, write
from hlokit.tools.inputs import Inputs, arguments_for


def extract(
    file: Path,
    *,
    instruction: str,
    first: Annotated[str | None, Parameter(name="--from")] = None,
    input: Inputs = (),
    random: int | None = None,
    output: Annotated[Path, Parameter(alias="-o")] = Path("-"),
) -> None:
    """Makes a program from one instruction, or from all instructions between two, with its operands as parameters.

    With --input or --random, an .npz with OUTPUT's name is written as well. It contains the values of the operands on
    the interpreter when the instruction runs for the first time.

    Parameters
    ----------
    file:
        a program in any kind of file that hlokit reads; `-` is standard input.
    instruction:
        the name of the instruction whose value is the new program's result.
    first:
        the name of an instruction on which it depends: all instructions between the two are included.
    input:
        the arguments of the whole program: an .npz with an array for each parameter, by the parameters' names or as
        in0, in1, ... or arr_0, arr_1, ...; or values, one --input for each parameter: f32[4,8]=1, 's32[3]={1, 2, 3}'.
    random:
        the seed of random arguments.
    output:
        the file to write, as HLO text; by default standard output.
    """
    module = loaded(file)
    verify(module)
    arguments = arguments_for(module, input, random) if input or random is not None else None
    case = extracted(module, instruction, first or "", arguments)
    write(output, case.module.to_text("short_parsable").encode())
    if case.arguments is not None and str(output) != "-":
        path = output.with_suffix(".npz")
        write(path, npz_of(tuple(case.arguments), "in"))
        print(f"{output}: {counted(case.size, 'instruction')}; arguments in {path}")
