"""A module as HLO text, byte for byte as XLA prints it (HPRINT)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from hlokit.errors import UnsupportedError
from hlokit.hlo.computation import MAIN_THREAD
from hlokit.text.asynchronous import AsyncChains, wrapped_root
from hlokit.text.common import dictionary_text, quoted_or_json
from hlokit.text.header import header_text, tables_text
from hlokit.text.lexer import escaped
from hlokit.text.metadata import metadata_text
from hlokit.text.numbers import literal_text
from hlokit.text.spelling import CANONICAL_ROLE_NAMES, spelling_of, written_roles
from hlokit.types.shape import Shape

if TYPE_CHECKING:
    from hlokit.hlo.computation import Computation
    from hlokit.hlo.instruction import Extra, Instruction
    from hlokit.hlo.module import HloModule
    from hlokit.hlo.op import Op


@dataclass(frozen=True, slots=True)
class PrintOptions:
    """Options of printing (HPRINT-8). The presets are XLA's."""

    print_large_constants: bool = False
    print_metadata: bool = True
    print_backend_config: bool = True
    print_operand_shape: bool = False
    print_operand_names: bool = True
    print_program_shape: bool = True
    print_percent: bool = True
    print_control_dependencies: bool = True
    include_layout_in_shapes: bool = True
    print_ids: bool = True
    indent_amount: int = 0
    compact_operands: bool = False
    canonicalize_instruction_names: bool = False
    canonicalize_computations: bool = False
    print_operand_index_annotation: bool = True

    @staticmethod
    def default() -> PrintOptions:
        """HPRINT-3."""
        return PrintOptions()

    @staticmethod
    def short_parsable() -> PrintOptions:
        """HPRINT-5: what reads back to the same program, and little else."""
        return PrintOptions(
            print_large_constants=True,
            print_metadata=False,
            print_program_shape=False,
            print_percent=False,
            print_control_dependencies=False,
            print_operand_index_annotation=False,
        )

    @staticmethod
    def canonical() -> PrintOptions:
        """HPRINT-6: without names of its own, called computations in place."""
        return PrintOptions(
            print_metadata=False,
            print_backend_config=False,
            print_operand_shape=True,
            print_operand_names=False,
            print_program_shape=False,
            print_percent=False,
            print_control_dependencies=False,
            print_operand_index_annotation=False,
            canonicalize_instruction_names=True,
        )

    @staticmethod
    def fingerprint() -> PrintOptions:
        """HPRINT-7: canonical without names of module and computations; cannot be read back."""
        return PrintOptions(
            print_metadata=False,
            print_backend_config=False,
            print_operand_shape=True,
            print_operand_names=False,
            print_program_shape=False,
            print_percent=False,
            print_control_dependencies=False,
            print_operand_index_annotation=False,
            canonicalize_instruction_names=True,
            canonicalize_computations=True,
            print_ids=False,
        )


_MAX_BODIES = 100_000
_MAX_DEPTH = 100

PRESETS = {
    "default": PrintOptions.default,
    "short_parsable": PrintOptions.short_parsable,
    "canonical": PrintOptions.canonical,
    "fingerprint": PrintOptions.fingerprint,
}

Options: TypeAlias = PrintOptions | str | None


def _options(options: Options) -> PrintOptions:
    if options is None:
        return PrintOptions()
    if isinstance(options, PrintOptions):
        return options
    if options not in PRESETS:
        raise ValueError(f"no print preset {options!r}: one of {', '.join(PRESETS)}")
    return PRESETS[options]()


def module_text(module: HloModule, options: Options = None) -> str:
    """The module as text: PrintOptions, or the name of a preset. Ends with `}` and two newlines (HPRINT-11)."""
    chosen = _options(options)
    printer = _Printer(chosen)
    header = header_text(module, module.name if chosen.print_ids else "")
    tables = tables_text(module.stack_tables) if chosen.print_metadata else ""
    parts = [f"{header}\n\n{tables}"]
    entry = module.entry_or_none
    computations, printer.scheduled = module.computations(), module.scheduled()
    callers: dict[Computation, list[Instruction]] = {}
    for call in (i for computation in computations for i in computation.instructions if i.called):
        for callee in call.called:
            callers.setdefault(callee, []).append(call)
    for computation in computations:
        if _is_hidden(computation, callers):
            continue
        parts.append(printer.computation(computation, computation is entry))
        parts.append("\n\n")
    return "".join(parts)


def computation_text(computation: Computation, options: Options = None) -> str:
    """One computation as text."""
    module = computation.module
    printer = _Printer(_options(options))
    printer.scheduled = module.scheduled() if module is not None else set()
    return printer.computation(computation, module is not None and module.entry_or_none is computation)


def instruction_text(instruction: Instruction, options: Options = None) -> str:
    """One instruction as text, without ROOT and indentation."""
    printer = _Printer(_options(options))
    return printer.instruction(instruction, {}, "")


def _closing(computation: Computation) -> str:
    thread = computation.execution_thread
    text = "}" if thread == MAIN_THREAD else f'}}, execution_thread="{escaped(thread)}"'
    config = computation.backend_config
    return f"{text}, backend_config={quoted_or_json(config)}" if config else text


def _is_hidden(computation: Computation, callers: dict[Computation, list[Instruction]]) -> bool:
    """Whether it is only what short forms of async-start wrap (HASYNC-3)."""
    calls = callers.get(computation)
    return bool(calls) and all(call.opcode == "async-start" and wrapped_root(call) is not None for call in calls)


class _Printer:
    """Prints with fixed options; remembers the texts of shapes."""

    def __init__(self, options: PrintOptions) -> None:
        self.options = options
        self.percent = "%" if options.print_percent else ""
        self.shapes: dict[Shape, str] = {}
        self.canonical = options.canonicalize_instruction_names
        self.indent = "  " * options.indent_amount
        self.chains = AsyncChains()
        self.scheduled: set[Computation] = set()
        self.bodies = 0
        self.depth = 0

    def shape(self, shape: Shape) -> str:
        text = self.shapes.get(shape)
        if text is None:
            text = self.shapes[shape] = shape.to_text(self.options.include_layout_in_shapes)
        return text

    # -- computations

    def computation(self, computation: Computation, is_entry: bool) -> str:
        options = self.options
        words = ["ENTRY"] if is_entry else []
        if not options.canonicalize_computations:
            words.append(f"{self.percent}{computation.name}")
        if options.print_program_shape:
            words.append(self._signature(computation))
        lines = [self.indent + " ".join([*words, "{"])]
        order = computation.instructions if computation in self.scheduled else computation.post_order()
        lines += self.body_lines(computation, order, self.indent + "  ")
        lines.append(self.indent + _closing(computation))
        return "\n".join(lines)

    def _signature(self, computation: Computation) -> str:
        parts = [f"{p.name}: {p.shape.to_text(False)}" for p in computation.parameters]
        return f"({', '.join(parts)}) -> {computation.root.shape.to_text(False)}"

    def body_lines(self, computation: Computation, order: Sequence[Instruction], indent: str) -> Iterator[str]:
        names = {i: f"tmp_{number}" for number, i in enumerate(order)} if self.canonical else {}
        root = computation.root
        for instruction in order:
            mark = "ROOT " if instruction is root else ""
            yield f"{indent}{mark}{self.instruction(instruction, names, indent)}"

    # -- instructions

    def instruction(self, instruction: Instruction, names: dict[Instruction, str], indent: str) -> str:
        op = instruction.op
        name = names.get(instruction) or self.percent + instruction.name
        opcode = op.opcode
        if opcode.startswith("async-"):
            opcode = self.chains.opcode_text(instruction)
        parts = [name, " = ", self.shape(instruction.shape), " ", opcode, "("]
        if op.opcode == "parameter":
            parts.append(str(op.number))  # type: ignore[attr-defined]
        elif op.opcode == "constant":
            parts.append(literal_text(op.literal, self.options.print_large_constants))  # type: ignore[attr-defined]
        else:
            parts.append(self._operands(instruction, names))
        parts.append(")")
        parts += self._attributes(op)
        if instruction.called:
            wrapped = wrapped_root(instruction) if opcode != op.opcode else None
            if wrapped is not None:
                parts += self._wrapped(instruction, wrapped, indent)
            else:
                parts += self._roles(instruction, indent)
            if getattr(op, "is_composite", False):  # the one attribute that XLA writes after the computation (HOP-19)
                parts.append(", is_composite=true")
        if instruction.extra is not None:
            parts += self._extra(instruction.extra, names)
        return "".join(parts)

    def _attributes(self, op: Op) -> Iterator[str]:
        for field, unprinted, prefix, writer in spelling_of(type(op)).writers:
            value = field(op)
            if value not in unprinted:
                yield prefix
                yield writer(value)

    def _wrapped(self, start: Instruction, root: Instruction, indent: str) -> Iterator[str]:
        """The wrapped op, as the short form of a start prints it."""
        yield from self._attributes(root.op)
        yield from self._roles(root, indent)
        if root.extra and not (start.extra and start.extra.frontend_attributes):
            yield _frontend_attributes_text(root.extra)
        if self.canonical:
            yield from self._roles(start, indent)

    def _operands(self, instruction: Instruction, names: dict[Instruction, str]) -> str:
        options = self.options
        operands = instruction.operands
        shown = operands[:4] if options.compact_operands and len(operands) > 5 else operands
        texts: list[str] = []
        for operand in shown:
            words: list[str] = []
            if options.print_operand_shape:
                words.append(self.shape(operand.shape))
            if self.canonical:
                words.append(names.get(operand, operand.name))
            elif options.print_operand_names:
                words.append(self.percent + operand.name)
            texts.append(" ".join(words))
        if options.print_operand_index_annotation and len(texts) > 5:
            texts = [f"/*index={i}*/{text}" if i and i % 5 == 0 else text for i, text in enumerate(texts)]
        if len(shown) < len(operands):
            texts.append(f"...(+{len(operands) - len(shown)})")
        return ", ".join(texts)

    def _roles(self, instruction: Instruction, indent: str) -> Iterator[str]:
        op = instruction.op
        for role, called in written_roles(op, [o.shape for o in instruction.operands[:1]], instruction.called):
            yield f", {CANONICAL_ROLE_NAMES.get((op.opcode, role), role) if self.canonical else role}="
            if not self.canonical:
                yield self._names(called) if isinstance(called, list) else self.percent + called.name  # pyright: ignore[reportUnknownArgumentType]
            elif isinstance(called, list):
                bodies = [self._in_place(computation, indent) for computation in called]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
                yield "{" + ",".join(bodies) + "\n}"
            else:
                yield self._in_place(called, indent)

    def _names(self, computations: list[Computation]) -> str:
        return "{" + ", ".join(self.percent + computation.name for computation in computations) + "}"

    def _in_place(self, computation: Computation, indent: str) -> str:
        """The body where it is called. n calls can ask for 2^n bodies, or for a nest of n: both end here."""
        self.bodies += 1
        self.depth += 1
        if self.bodies > _MAX_BODIES or self.depth > _MAX_DEPTH:
            limits = f"{_MAX_BODIES} bodies, {_MAX_DEPTH} deep"
            raise UnsupportedError(f"canonical text repeats each called computation in place: more than {limits}")
        lines = list(self.body_lines(computation, computation.post_order(), indent + "  "))
        self.depth -= 1
        return "\n".join(["", indent + "{", *lines, indent + _closing(computation)])

    def _extra(self, extra: Extra, names: dict[Instruction, str]) -> Iterator[str]:
        options = self.options
        if extra.parameter_replication:
            flags = ",".join("true" if flag else "false" for flag in extra.parameter_replication)
            yield f", parameter_replication={{{flags}}}"
        if extra.sharding is not None:
            yield f", sharding={extra.sharding if options.print_metadata else extra.sharding.without_metadata()}"
        yield _frontend_attributes_text(extra)
        if options.print_control_dependencies and extra.control_predecessors:
            predecessors = ", ".join(names.get(p) or self.percent + p.name for p in extra.control_predecessors)
            yield f", control-predecessors={{{predecessors}}}"
        if extra.statistics:
            yield f", statistics={{{extra.statistics.strip('{}')}}}"
        if extra.origin:
            yield f", origin={extra.origin}"
        if options.print_metadata and extra.metadata is not None:
            text = metadata_text(extra.metadata)
            if text != "{}":
                yield f", metadata={text}"
        if options.print_backend_config and extra.backend_config:
            yield f", backend_config={quoted_or_json(extra.backend_config)}"


def _frontend_attributes_text(extra: Extra) -> str:
    return f", frontend_attributes={dictionary_text(extra.frontend_attributes)}" if extra.frontend_attributes else ""
