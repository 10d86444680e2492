"""The compiled program as JAX requests it: a HloModuleProtoWithConfig, with the shardings on several devices.

XLA's own reader makes the proto from HLO text: jaxlib is there when JAX is.
"""

from __future__ import annotations

import ctypes
from typing import Any

from hlokit.errors import UnsupportedError
from hlokit.hlo.module import HloModule
from hlokit.interop.pjrt import kept, layouts
from hlokit.interop.pjrt.loaded import Loaded, loaded_at
from hlokit.interop.pjrt.memory import constant
from hlokit.interop.pjrt.options import fields
from hlokit.interop.pjrt.sharding_proto import known, message, number, sharding_proto
from hlokit.interop.pjrt.table import function
from hlokit.types.sharding import Sharding

_program: Any = layouts.struct("Program")
_FORMAT = "hlo_with_config"
_MOST = 1000
"""Instructions up to which a program of one device is given: JAX asks four times a compile, for its text alone."""


@function("Executable_OptimizedProgram")
def _optimized(a: Any) -> None:
    data = _of(loaded_at(a.executable))
    program = _program.from_address(a.program)
    program.format, program.format_size = constant(_FORMAT)
    if not program.code:
        program.code_size = len(data)
    elif program.code_size < len(data):
        raise UnsupportedError(f"{program.code_size} bytes for a program of {len(data)}")
    else:
        ctypes.memmove(program.code, data, len(data))


_made: dict[int, tuple[Loaded, bytes]] = {}


def _of(loaded: Loaded) -> bytes:
    """The bytes; of the executable that was asked for last they are kept."""
    found = _made.get(loaded.address)
    if found is not None and found[0] is loaded:
        return found[1]
    program = loaded.program
    if program.options.count == 1 and program.instructions > _MOST:
        raise UnsupportedError(f"{program.name}: the text of programs of more than {_MOST} instructions")
    _made.clear()
    data = kept.text_of(program)
    if data is None:
        data = _bytes(loaded)
        kept.keep_text(program, data)
    _made[loaded.address] = (loaded, data)
    return data


def _bytes(loaded: Loaded) -> bytes:
    program = loaded.program
    try:
        proto = _proto(loaded.run.module.to_text())
    except Exception:  # what XLA's reader does not know
        proto = _proto(_outline(loaded.run.module))
    outline = _proto(_outline(loaded.run.module))  # arrays lie row-major, whatever a result's instruction says
    layout = b"".join(value for field, value in fields(outline) if field == 4 and isinstance(value, bytes))
    if program.options.count > 1:
        given, made = loaded.run.shardings()
        elements = tuple(map(known, made or [None]))  # XLA's empty tuple has a sharding, too
        result = made[0] if not program.is_tuple else Sharding("tuple", elements=elements)
        proto += message(12, sharding_proto(known(result)))
        proto += b"".join(message(14, sharding_proto(known(s))) for s in given)
    counts = number(4, program.options.replicas) + number(5, program.options.partitions)
    return message(1, proto) + message(2, message(1, layout) + counts)


def _proto(text: str) -> bytes:
    """A HloModuleProto by XLA."""
    from jaxlib import _hlo  # pyright: ignore

    return _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()  # pyright: ignore


def _outline(module: HloModule) -> str:
    """A module of the same signature, row-major, that only names it."""
    rows = [f"p{i} = {p.shape.logical} parameter({i})" for i, p in enumerate(module.entry.parameters)]
    names = ", ".join(f"p{i}" for i in range(len(rows)))
    rows.append(f'ROOT r = {module.entry.root.shape.logical} custom-call({names}), custom_call_target="hlokit"')
    return f"HloModule {module.name}\n\nENTRY main {{\n  " + "\n  ".join(rows) + "\n}\n"
