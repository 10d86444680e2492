"""hlokit view: a program as an HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from hlokit.api import compile as compile_module
from hlokit.api import partition, verify
from hlokit.errors import ArgumentError
from hlokit.runtime.executable import Executable
from hlokit.runtime.profile import Profile
from hlokit.tools.files import is_standard, loaded, write
from hlokit.tools.inputs import Inputs, arguments_for
from hlokit.view.making import view_executable, view_module
from hlokit.view.page import View


def view(
    file: Path,
    *,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    graph: bool = False,
    input: Inputs = (),
    random: int | None = None,
    mesh: str | None = None,
) -> None:
    """Writes a page that shows a program: passes, graph, loops, LLVM text, assembly, memory.

    The page opens in any browser, without a server or a network.

    Parameters
    ----------
    file:
        a program in any kind of file that hlokit reads; `-` is standard input.
    output:
        the page; by default NAME.html in the current folder, with the file's name; `-` is standard output.
    graph:
        only the graph and the default passes, without machine code.
    input:
        arguments as for `hlokit run`: the program is run, and the page shows the time of each step.
    random:
        the same with random arguments: their seed.
    mesh:
        axes and their sizes, as a=2,b=4: the program is divided, and the page shows shardings, collectives and their
        reasons.
    """
    module = loaded(file)
    verify(module)
    page: View
    if mesh is not None:
        page = partition(module, mesh).view()
    elif not graph:
        made: Any = compile_module(module)
        if not isinstance(made, Executable):
            raise ArgumentError("view: a program for several devices: --graph shows its graph and passes")
        times: Profile | None = None
        if input or random is not None:
            times = made.profile(*arguments_for(module, input, random))
        page = view_executable(made, times)
    else:
        page = view_module(module)
    name = "program" if is_standard(file) else file.name.split(".")[0]
    output = output or Path(f"{name}.html")
    write(output, page.html.encode())
    if not is_standard(output):
        print(f"{output}: {len(page.html):,} bytes")
