"""XlaComputation, HloModule and the conversions between them."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import hlokit as hk
from hlokit.interop.xla_client.errors import raises_status
from hlokit.interop.xla_client.shapes import ProgramShape
from hlokit.text.printer import PrintOptions


class HloPrintOptions:
    """Options of printing. Defaults are jaxlib 0.4.30's; three have no effect here (see docs/xla_client.md).

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> module = xc._xla.hlo_module_from_text("ENTRY e { ROOT x = f32[2] parameter(0) }")
    >>> options = xc._xla.HloPrintOptions.short_parsable()
    >>> options.include_layout_in_shapes = False
    >>> print(module.to_string(options).splitlines()[3].strip())
    ROOT x = f32[2] parameter(0)
    """

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
        """Options for text that is short and can be read back.

        Returns
        -------
        HloPrintOptions
            The options.
        """
        return _of_preset(PrintOptions.short_parsable(), print_backend_config=False)

    @staticmethod
    def canonical() -> HloPrintOptions:
        """Options for text that is equal for modules that differ in names only.

        Returns
        -------
        HloPrintOptions
            The options.
        """
        return _of_preset(PrintOptions.canonical())

    @staticmethod
    def fingerprint() -> HloPrintOptions:
        """Options for text of which a fingerprint is made: without names and metadata.

        Returns
        -------
        HloPrintOptions
            The options.
        """
        return _of_preset(PrintOptions.fingerprint())

    @property
    def core(self) -> PrintOptions:
        """The same as hlokit's options."""
        known = PrintOptions.__dataclass_fields__
        options = PrintOptions(**{name: value for name, value in vars(self).items() if name in known})
        return replace(options, print_operand_index_annotation=self.print_operand_shape)


def _of_preset(core: PrintOptions, **changes: bool) -> HloPrintOptions:
    options = HloPrintOptions()
    for name in vars(options):
        setattr(options, name, changes.get(name, getattr(core, name, getattr(options, name))))
    return options


class HloComputation:
    """A computation of a module.

    Parameters
    ----------
    name : str
        Its name.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> module = xc._xla.hlo_module_from_text("ENTRY e { ROOT x = f32[2] parameter(0) }")
    >>> [computation.name for computation in module.computations()]
    ['e']
    """

    def __init__(self, name: str) -> None:
        self.name = name


class HloModule:
    """A program. `core` is hlokit's module.

    Parameters
    ----------
    core : hlokit.HloModule
        hlokit's module; it is shared.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> print(xc._xla.hlo_module_from_text("ENTRY e { ROOT x = f32[2] parameter(0) }").to_string())
    HloModule module_e, entry_computation_layout={(f32[2]{0})->f32[2]{0}}
    <BLANKLINE>
    ENTRY %e (x: f32[2]) -> f32[2] {
      ROOT %x = f32[2]{0} parameter(0)
    }
    """

    def __init__(self, core: hk.HloModule) -> None:
        self.core = core

    @property
    def name(self) -> str:
        """The name."""
        return self.core.name

    def computations(self) -> list[HloComputation]:
        """The computations, in the order of HLO text.

        Returns
        -------
        list of HloComputation
            They have names and nothing else.
        """
        return [HloComputation(c.name) for c in self.core.computations()]

    def to_string(self, options: HloPrintOptions | None = None) -> str:
        """The module as HLO text.

        Parameters
        ----------
        options : HloPrintOptions, optional
            What is printed; by default as jaxlib 0.4.30 does.

        Returns
        -------
        str
            The text.
        """
        return self.core.to_text((options or HloPrintOptions()).core)

    @raises_status
    def as_serialized_hlo_module_proto(self) -> bytes:
        """The module as a proto.

        Returns
        -------
        bytes
            A serialized HloModuleProto.

        Raises
        ------
        XlaRuntimeError
            hlokit[proto] is not installed (UNIMPLEMENTED).
        """
        from hlokit.proto.module import module_to_proto

        return module_to_proto(self.core)

    @staticmethod
    @raises_status
    def from_serialized_hlo_module_proto(data: bytes, /) -> HloModule:
        """The module in a proto.

        Parameters
        ----------
        data : bytes
            A serialized HloModuleProto.

        Returns
        -------
        HloModule
            The module.

        Raises
        ------
        XlaRuntimeError
            The bytes are not such a proto, or hlokit[proto] is not installed.
        """
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
    """A computation that was built, or read from a serialized HloModuleProto. Ops call it, clients compile it.

    Parameters
    ----------
    serialized_hlo_module_proto : bytes
        The proto; it is read when the computation is first used.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> builder = xc.XlaBuilder("one")
    >>> one = xc.ops.Constant(builder, np.float32(1))
    >>> print(builder.build(one).as_hlo_text().splitlines()[3].strip())
    ROOT constant.1 = f32[] constant(1)
    """

    def __init__(self, serialized_hlo_module_proto: bytes, /) -> None:
        self._serialized: bytes | None = bytes(serialized_hlo_module_proto)
        self._module: hk.HloModule | None = None

    @staticmethod
    def of(module: hk.HloModule) -> XlaComputation:
        """The computation of hlokit's module.

        Parameters
        ----------
        module : hlokit.HloModule
            The module; it is shared.

        Returns
        -------
        XlaComputation
            The computation.
        """
        computation = XlaComputation(b"")
        computation._serialized, computation._module = None, module
        return computation

    @property
    def core(self) -> hk.HloModule:
        """hlokit's module. Raises HlokitError if the bytes are not a HloModuleProto."""
        if self._module is None:
            from hlokit.proto.module import module_from_proto

            assert self._serialized is not None
            self._module = module_from_proto(self._serialized)
        return self._module

    @raises_status
    def as_hlo_module(self) -> HloModule:
        """The computation as a module.

        Returns
        -------
        HloModule
            The module; it is shared.

        Raises
        ------
        XlaRuntimeError
            The bytes are not a HloModuleProto.
        """
        return HloModule(self.core)

    def get_hlo_module(self) -> HloModule:
        """`as_hlo_module`, under another of jaxlib's names.

        Returns
        -------
        HloModule
            The module; it is shared.

        Raises
        ------
        XlaRuntimeError
            The bytes are not a HloModuleProto.
        """
        return self.as_hlo_module()

    @raises_status
    def as_hlo_text(self, print_large_constants: bool = False) -> str:
        """HLO text in its short form.

        Parameters
        ----------
        print_large_constants : bool, optional
            Whether constants are printed whole, as they must be for the text to be read back.

        Returns
        -------
        str
            The text.

        Raises
        ------
        XlaRuntimeError
            The bytes are not a HloModuleProto.
        """
        options = PrintOptions.short_parsable()
        return self.core.to_text(replace(options, print_large_constants=print_large_constants))

    @raises_status
    def as_hlo_dot_graph(self) -> str:
        """The computation as a Graphviz graph.

        Returns
        -------
        str
            The graph in the DOT language.

        Raises
        ------
        XlaRuntimeError
            The bytes are not a HloModuleProto.
        """
        return hlo_module_to_dot_graph(HloModule(self.core))

    @raises_status
    def as_serialized_hlo_module_proto(self) -> bytes:
        """The computation as a proto.

        Returns
        -------
        bytes
            A serialized HloModuleProto.

        Raises
        ------
        XlaRuntimeError
            hlokit[proto] is not installed (UNIMPLEMENTED).
        """
        from hlokit.proto.module import module_to_proto

        return self._serialized if self._serialized is not None else module_to_proto(self.core)

    @raises_status
    def name(self) -> str:
        """The name of the module.

        Returns
        -------
        str
            The name.

        Raises
        ------
        XlaRuntimeError
            The bytes are not a HloModuleProto.
        """
        return self.core.name

    @raises_status
    def program_shape(self) -> ProgramShape:
        """The shapes of the parameters and of the result.

        Returns
        -------
        ProgramShape
            The shapes.

        Raises
        ------
        XlaRuntimeError
            The bytes are not a HloModuleProto.
        """
        return ProgramShape.of(self.core.entry.program_shape)

    @raises_status
    def hash(self) -> int:
        """A hash that ignores names and metadata.

        Returns
        -------
        int
            64 bits without sign.

        Raises
        ------
        XlaRuntimeError
            The bytes are not a HloModuleProto.
        """
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
    """The module in HLO text.

    Parameters
    ----------
    hlo_module_text : str
        HLO text.

    Returns
    -------
    HloModule
        The module.

    Raises
    ------
    XlaRuntimeError
        The text cannot be read or breaks a rule; the message has the line, the column and the rule's label.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc._xla.hlo_module_from_text("HloModule m  ENTRY e { ROOT x = f32[2] parameter(0) }").name
    'm'
    """
    return HloModule(hk.parse(hlo_module_text))


def hlo_module_to_dot_graph(hlo_module: HloModule, /) -> str:
    """The module as a Graphviz graph.

    Parameters
    ----------
    hlo_module : HloModule
        The module.

    Returns
    -------
    str
        The graph in the DOT language.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> module = xc._xla.hlo_module_from_text("ENTRY e { ROOT x = f32[2] parameter(0) }")
    >>> xc._xla.hlo_module_to_dot_graph(module).split()[0]
    'digraph'
    """
    from hlokit.tools.dot import dot_text

    return dot_text(hlo_module.core)


@raises_status
def hlo_module_cost_analysis(client: Any, module: HloModule, /) -> dict[str, float]:
    """Estimates for one run of a module.

    Parameters
    ----------
    client : Any
        Has no effect.
    module : HloModule
        The module.

    Returns
    -------
    dict
        Among others "flops", "transcendentals" and "bytes accessed".

    Raises
    ------
    XlaRuntimeError
        The cost of an instruction is not defined.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> module = xc._xla.hlo_module_from_text("ENTRY e { x = f32[2] parameter(0)  ROOT y = f32[2] add(x, x) }")
    >>> xc._xla.hlo_module_cost_analysis(None, module)["flops"]
    2.0
    """
    from hlokit.analysis.cost import cost_of_module

    return cost_of_module(module.core).properties()
