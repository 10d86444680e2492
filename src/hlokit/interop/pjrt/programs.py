"""Programs as JAX passes them to the compiler: a module, options and devices."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hlokit.errors import ParseError, UnsupportedError
from hlokit.hlo.module import HloModule
from hlokit.interop.jax.callbacks import called, configurations, has_calls, inspections
from hlokit.interop.jax.reading import read
from hlokit.interop.pjrt import kept
from hlokit.interop.pjrt.arrays import nbytes
from hlokit.interop.pjrt.client import KINDS, Device, devices, is_local
from hlokit.interop.pjrt.options import Options, parse
from hlokit.ops.custom import DEVICES, TYPED_FFI, CustomCall
from hlokit.runtime.compilation import Interface
from hlokit.runtime.dump import flags
from hlokit.stablehlo.lowering import MEMORY_KINDS, OTHER_LAYOUT
from hlokit.types.dtype import pred
from hlokit.types.shape import Shape

if TYPE_CHECKING:
    from hlokit.hlo.instruction import Instruction
    from hlokit.interop.jax.callbacks import Callback

_MAGIC = b"hlokit 1\n"
WITH_CALLBACKS = "a program that calls Python functions is not serialized"


class Program:
    """A program and where it is to run. `may_call`: Python functions, else UnsupportedError.

    devices               those that run it, replica by replica; `own`: the numbers in this list of this process's
    parameters, results   shapes of what buffers hold; the results are those of a tuple, or the one result
    interface             the names of parameters, and the shapes that its module gives
    donated               numbers of parameters whose buffers it may overwrite
    record                what the cache knows of it, if it was compiled before
    callbacks             Python functions that it calls, `inspections` among them: those that ask for the sharding of
                          an instruction's value
    """

    def __init__(self, code: bytes, options: bytes, may_call: bool = True) -> None:
        self.code, self.serialized_options = code, options
        self.options: Options = parse(options, len(devices()))
        self.devices: tuple[Device, ...] = tuple(map(devices().__getitem__, self.options.assignment))
        self.own = [number for number, device in enumerate(self.devices) if is_local(device)]
        self.inspections: Sequence[tuple[Instruction, Callback]] = ()
        self.callbacks: Sequence[Callback] = ()
        self.record = kept.find(code, self.options)
        if self.record is None:
            self._look_at_module(may_call)
        else:
            self._check_calls(may_call, bool(self.record.callbacks), self.record.interface.name)
            self.callbacks = called(self.record.callbacks)
        self.interface = self.record.interface if self.record is not None else Interface.of(self.module)
        self.name = self.interface.name
        self.parameters: list[Shape] = [_carried(shape) for _, shape in self.interface.parameters]
        root = self.interface.result
        self.is_tuple = root.is_tuple
        self.results: list[Shape] = [_carried(shape) for shape in (root.elements if root.is_tuple else [root])]
        self.donated = self._donated() if self.record is None else set(self.record.donated)
        self.memory_kinds = (
            _memory_kinds(self.module, len(self.results)) if self.record is None else [*self.record.memory_kinds]
        )

    @cached_property
    def module(self) -> HloModule:
        """The module, read when it is first asked for."""
        return self.read()

    def read(self, keeps_regions: bool = False) -> HloModule:
        """The module, read again; `keeps_regions`: see hlokit.parse."""
        with flags(self.options.flags):
            module = read(self.code, keeps_regions)
        if self.options.assignment != tuple(range(self.options.count)) and _has_handlers(module):
            module.frontend_attributes[DEVICES] = ",".join(map(str, self.options.assignment))
        return module

    def _look_at_module(self, may_call: bool) -> None:
        module = self.module
        self._check_calls(may_call, has_calls(module), module.name)
        wanted = module.frontend_attributes.get(OTHER_LAYOUT)
        if wanted:
            raise UnsupportedError(f"{module.name}: {wanted}: arrays have one order in memory, row-major")
        self.inspections = inspections(module)
        self.callbacks = [*called(configurations(module)), *(callback for _, callback in self.inspections)]

    @staticmethod
    def _check_calls(may_call: bool, has_calls: bool, name: str) -> None:
        if has_calls and not may_call:
            raise UnsupportedError(f"{name}: it calls Python functions of the process that serialized it")

    @property
    def instructions(self) -> int:
        """The number of the module's instructions."""
        if self.record is not None:
            return self.record.instructions
        return sum(len(computation.instructions) for computation in self.module.all_computations)

    def _donated(self) -> set[int]:
        """The parameters that a result is said to lie in; and of the other buffer donors one for each further result of
        its size, as XLA does it. The rest of the donors stay alive."""
        aliases = self.module.input_output_alias
        found = {alias.parameter for alias in aliases}
        taken = {alias.output_index[0] if alias.output_index else 0 for alias in aliases}
        left = Counter(nbytes(shape) for number, shape in enumerate(self.results) if number not in taken)
        for number in sorted({number for number, _ in self.module.buffer_donor} - found):
            size = nbytes(self.parameters[number])
            if left[size]:
                left[size] -= 1
                found.add(number)
        return found

    @property
    def local_devices(self) -> list[Device]:
        """Its devices in this process."""
        return [self.devices[number] for number in self.own]

    @property
    def is_spread(self) -> bool:
        """Whether other processes run it, too."""
        return len(self.own) < len(self.devices)

    @cached_property
    def fingerprint(self) -> str:
        """Equal for equal programs with equal options."""
        return hashlib.sha256(self.code + self.serialized_options).hexdigest()

    def serialized(self) -> bytes:
        """The program and its options. Its machine code is in hlokit's own cache.

        UnsupportedError: it calls Python functions, which another process would not find.
        """
        if self.record.callbacks if self.record is not None else self.callbacks or has_calls(self.module):
            raise UnsupportedError(f"{self.name}: {WITH_CALLBACKS}")
        head = json.dumps({"options": len(self.serialized_options), "code": len(self.code)}).encode()
        return _MAGIC + head + b"\n" + self.serialized_options + self.code


def deserialized(data: bytes, options: bytes) -> Program:
    """The program that `serialized` wrote; `options`, where given, in place of its own.

    ParseError for anything else, UnsupportedError for a program that calls Python functions.
    """
    head, _, rest = data.removeprefix(_MAGIC).partition(b"\n")
    try:
        sizes: Any = json.loads(head) if data.startswith(_MAGIC) else {}
        counts = [int(sizes["options"]), int(sizes["code"])]
    except (ValueError, KeyError, TypeError):
        counts = [-1]
    if min(counts) < 0 or sum(counts) != len(rest):
        raise ParseError("the bytes are no executable of hlokit's")
    own = rest[: counts[0]]
    return Program(rest[len(own) :], options or own, may_call=False)


def _has_handlers(module: HloModule) -> bool:
    """Whether there are calls that may ask for their device's number."""
    return any(
        isinstance(instruction.op, CustomCall) and instruction.op.api_version == TYPED_FFI
        for computation in module.all_computations
        for instruction in computation.instructions
    )


def _memory_kinds(module: HloModule, count: int) -> list[str]:
    """The kind of memory of each result. UnsupportedError for one that there is not."""
    found = module.frontend_attributes.get(MEMORY_KINDS, "")
    kinds = found.split(",") if found else ["device"] * count
    for kind in kinds:
        if kind not in KINDS:
            raise UnsupportedError(f"{module.name}: the memory kind {kind!r}: there are {', '.join(KINDS)}")
    return kinds


def _carried(shape: Shape) -> Shape:
    """The shape of the buffer of a value of this shape: for a token an array without elements, as JAX begins with."""
    return pred[0] if shape.is_token else shape
