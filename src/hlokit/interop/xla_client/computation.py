"""XlaComputation, HloModule and what turns one into the other."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import hlokit as hk
from hlokit.interop.xla_client.errors import raises_status
from hlokit.interop.xla_client.shapes import ProgramShape
from hlokit.text.printer import PrintOptions


class HloPrintOptions:
    """Options of printing. Defaults are jaxlib 0.4.30's; three have no effect here (see docs/xla_client.md)."""

    def __init__(self) -> None:
        self.print_large_constants = False
        self.print_metadata = True
        self.print_backend_config = True
        self.print_result_shape = True
        self.print_operand_shape = True
        self.print_operand_names = True
        self.print_program_shape = True
        self.print_percent = True
        self.print_control_dependencies = True
        self.print_extra_attributes = True
        self.print_ids = True
        self.include_layout_in_shapes = True
        self.canonicalize_instruction_names = False
        self.canonicalize_computations = False
        self.compact_operands = False
        self.indent_amount = 0
        self.is_in_nested_computation = 0

    @staticmethod
    def short_parsable() -> HloPrintOptions:
        return _of_preset(PrintOptions.short_parsable(), print_backend_config=False)

    @staticmethod
    def canonical() -> HloPrintOptions:
        return _of_preset(PrintOptions.canonical())

    @staticmethod
    def fingerprint() -> HloPrintOptions:
        return _of_preset(PrintOptions.fingerprint())

    @property
    def core(self) -> PrintOptions:
        known = PrintOptions.__dataclass_fields__
        options = PrintOptions(**{name: value for name, value in vars(self).items() if name in known})
        return replace(options, print_operand_index_annotation=self.print_operand_shape)


def _of_preset(core: PrintOptions, **changes: bool) -> HloPrintOptions:
    options = HloPrintOptions()
    for name in vars(options):
        setattr(options, name, changes.get(name, getattr(core, name, getattr(options, name))))
    return options


class HloComputation:
    """One computation of a module, by name."""

    def __init__(self, name: str) -> None:
        self.name = name


class HloModule:
    """A program. `core` is hlokit's module."""

    def __init__(self, core: hk.HloModule) -> None:
        self.core = core

    @property
    def name(self) -> str:
        return self.core.name

    def computations(self) -> list[HloComputation]:
        return [HloComputation(c.name) for c in self.core.computations()]

    def to_string(self, options: HloPrintOptions | None = None) -> str:
        return self.core.to_text((options or HloPrintOptions()).core)

    @raises_status
    def as_serialized_hlo_module_proto(self) -> bytes:
        from hlokit.proto.module import module_to_proto

        return module_to_proto(self.core)

    @staticmethod
    @raises_status
    def from_serialized_hlo_module_proto(data: bytes, /) -> HloModule:
        from hlokit.proto.module import module_from_proto

        return HloModule(module_from_proto(data))

    @property
    def spmd_output_sharding(self) -> None:
        """Nothing is partitioned here."""
        return None

    @property
    def spmd_parameters_shardings(self) -> None:
        """Nothing is partitioned here."""
        return None


class XlaComputation:
    """A computation that was built, or read from a serialized HloModuleProto.

    Ops call it, clients compile it. Bytes are read when the computation is first used.
    """

    def __init__(self, serialized_hlo_module_proto: bytes, /) -> None:
        self._serialized: bytes | None = bytes(serialized_hlo_module_proto)
        self._module: hk.HloModule | None = None

    @staticmethod
    def of(module: hk.HloModule) -> XlaComputation:
        computation = XlaComputation(b"")
        computation._serialized, computation._module = None, module
        return computation

    @property
    def core(self) -> hk.HloModule:
        """hlokit's module. Raises HlokitError if the bytes were none."""
        if self._module is None:
            from hlokit.proto.module import module_from_proto

            assert self._serialized is not None
            self._module = module_from_proto(self._serialized)
        return self._module

    @raises_status
    def as_hlo_module(self) -> HloModule:
        return HloModule(self.core)

    def get_hlo_module(self) -> HloModule:
        return self.as_hlo_module()

    @raises_status
    def as_hlo_text(self, print_large_constants: bool = False) -> str:
        """HLO text in the short form that reads back if large constants are printed."""
        options = PrintOptions.short_parsable()
        return self.core.to_text(replace(options, print_large_constants=print_large_constants))

    @raises_status
    def as_hlo_dot_graph(self) -> str:
        """The computation as a Graphviz graph."""
        return hlo_module_to_dot_graph(HloModule(self.core))

    @raises_status
    def as_serialized_hlo_module_proto(self) -> bytes:
        from hlokit.proto.module import module_to_proto

        return self._serialized if self._serialized is not None else module_to_proto(self.core)

    @raises_status
    def name(self) -> str:
        return self.core.name

    @raises_status
    def program_shape(self) -> ProgramShape:
        return ProgramShape.of(self.core.entry.program_shape)

    @raises_status
    def hash(self) -> int:
        """Equal for programs that differ in names and metadata only."""
        text = self.core.to_text(replace(PrintOptions.fingerprint(), print_large_constants=True))
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


class MlirModule:
    """The result of xla_computation_to_mlir_module: the computation, for `client.compile`. No MLIR is made.

    As text it is HLO text, which `client.compile` takes as well.
    """

    def __init__(self, computation: XlaComputation) -> None:
        self.computation = computation

    def __str__(self) -> str:
        return self.computation.as_hlo_text(print_large_constants=True)


@raises_status
def hlo_module_from_text(hlo_module_text: str, /) -> HloModule:
    """The module in HLO text. Raises XlaRuntimeError with line, column and the rule's label."""
    return HloModule(hk.parse(hlo_module_text))


def hlo_module_to_dot_graph(hlo_module: HloModule, /) -> str:
    """The module as a Graphviz graph."""
    from hlokit.tools.dot import dot_text

    return dot_text(hlo_module.core)


@raises_status
def hlo_module_cost_analysis(client: Any, module: HloModule, /) -> dict[str, float]:
    """flops, transcendentals and bytes accessed of one run; see hlokit.analysis.cost. `client` is not looked at."""
    from hlokit.analysis.cost import cost_of_module

    return cost_of_module(module.core).properties()
