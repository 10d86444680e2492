"""HLO text to a module. The language is in the attribute kinds and the op cards; here is what holds them together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hlokit import ops as _ops  # noqa: F401  # pyright: ignore[reportUnusedImport]  # fills the registry
from hlokit.errors import ShapeError
from hlokit.hlo.computation import MAIN_THREAD, Computation
from hlokit.hlo.frames import used_tables
from hlokit.hlo.instruction import Extra, Instruction
from hlokit.hlo.module import HloModule
from hlokit.hlo.names import RESERVED, Names
from hlokit.hlo.op import OPS, Op, infer_shape
from hlokit.text.asynchronous import AsyncChains, repeating_spelling, short_form, start_spelling, wrap
from hlokit.text.common import COMMON_READERS, read_config
from hlokit.text.drafts import Body, Called, Draft, TupleSizes
from hlokit.text.header import read_header
from hlokit.text.lexer import ATTRIBUTE, END, LABEL, NAME, WORD, Lexer, error_at
from hlokit.text.literals import read_literal
from hlokit.text.shapes import read_program_shape, read_shape, starts_shape
from hlokit.text.spelling import Spelling, branch_spelling, spelling_of
from hlokit.types.layout import default_layout
from hlokit.types.shape import ProgramShape, Shape
from hlokit.types.sharding import Sharding


def parse_hlo(text: str | bytes, verify: bool = True) -> HloModule:
    """The module that `text` says: a whole module, a list of computations, or one instruction (HMOD-15, HMOD-16).

    Checks every rule of the language on the way; without `verify`, only those of the text itself. Raises ParseError,
    with line, column and the rule's label.
    """
    if isinstance(text, bytes):
        text = _decoded(text)
    elif not text.isascii():
        _decoded(text.encode(errors="surrogatepass"))
    lexer = Lexer(text)
    try:
        return Parser(lexer, verify).module()
    except ShapeError as error:  # of a part that stands alone: a shape, a sharding
        raise lexer.error(str(error), error.label) from None


def _in_default_order(shape: Shape) -> Shape:
    """The shape with the minor_to_major of its default layout, and what else the layout says."""
    if shape.is_tuple:
        return Shape.tuple([_in_default_order(element) for element in shape.elements])
    if shape.layout is None:
        return shape
    return shape.with_layout(replace(shape.layout, minor_to_major=default_layout(shape.rank).minor_to_major))


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode() + "?"
        raise error_at(before, len(before) - 1, f"no UTF-8: {error.reason}", "LEX-6") from None


class Parser:
    """Reads one module from a lexer. `findings.py` reads on behind what this ends with."""

    def __init__(self, lexer: Lexer, verify: bool) -> None:
        self.lexer = lexer
        self.verify = verify
        self.by_name: dict[str, Computation] = {}
        self.computations: list[Computation] = []
        self.starts: dict[Computation, int] = {}
        self.chains = AsyncChains()
        self.sizes = TupleSizes()
        self.leaf_shardings: dict[tuple[Sharding, int], Sharding] = {}

    # -- modules

    def module(self) -> HloModule:
        lexer = self.lexer
        if lexer.value != "HloModule":
            if self._is_bare_instruction():
                return self._bare_instruction()
            module = HloModule("")
        else:
            module = self.read_header()
        entry: Computation | None = None
        while lexer.kind != END:
            start = lexer.start
            is_entry = lexer.accept("ENTRY")
            computation = self._computation()
            if is_entry and entry is not None:
                raise lexer.error("a module has only one ENTRY computation", "HMOD-17", start)
            if is_entry:
                entry = computation
        if not self.computations:
            raise lexer.unexpected("a computation", "HMOD-17")
        entry = entry or self.computations[-1]
        module.name = module.name or f"module_{entry.name}"
        return self._finished(module, entry)

    def read_header(self) -> HloModule:
        """The module with what its header says."""
        return read_header(self.lexer)

    def _finished(self, module: HloModule, entry: Computation) -> HloModule:
        computation_names, instruction_names = Names(), Names()
        for computation in self.computations:
            computation.name = computation_names.unique(computation.name)
            for instruction in computation.instructions:
                instruction.name = instruction_names.unique(instruction.name)
            module.add_computation(computation, entry=computation is entry)
        instructions = (i for computation in self.computations for i in computation.instructions)
        module.stack_tables = used_tables(module.stack_tables, instructions)
        module.is_unverified = not self.verify
        if self.verify:
            self._check_entry(module, self.starts.get(entry, 0))
        return module

    def _check_entry(self, module: HloModule, start: int) -> None:
        """HMOD-5, HMOD-7: what the header says about the entry fits it."""
        parameters, result = [p.shape for p in module.entry.parameters], module.entry.root.shape
        wanted = module.parameter_layouts
        if wanted is not None and module.result_layout is not None:
            if len(wanted) != len(parameters):
                message = f"entry_computation_layout has {len(wanted)} parameters, the entry {len(parameters)}"
                raise self.lexer.error(message, "HMOD-5", start)
            for said, found in zip([*wanted, module.result_layout], [*parameters, result], strict=True):
                if said.static is not found.static:
                    raise self.lexer.error(f"entry_computation_layout says {said}, the entry {found}", "HMOD-5", start)
        for alias in module.input_output_alias:
            try:
                output = result.at(alias.output_index)
                parameter = parameters[alias.parameter].at(alias.parameter_index)
            except IndexError:
                message = f"input_output_alias: no such output or parameter: {alias}"
                raise self.lexer.error(message, "HMOD-7", start) from None
            if alias.kind == "must-alias" and output.nbytes != parameter.nbytes:
                message = f"input_output_alias: {output} and {parameter} differ in size"
                raise self.lexer.error(message, "HMOD-7", start)

    # -- one instruction for a module

    def _is_bare_instruction(self) -> bool:
        lexer = self.lexer
        if lexer.kind == ATTRIBUTE or lexer.value == "(" or lexer.value == "ROOT":
            return True
        return lexer.kind in (NAME, WORD) and (lexer.peek() in ("=", "[") or starts_shape(lexer))

    def _bare_instruction(self) -> HloModule:
        """HMOD-16: every operand becomes a parameter."""
        lexer = self.lexer
        module = HloModule("_")
        module.is_scheduled = True
        computation = Computation("_", module)
        body = Body(computation)
        lexer.accept("ROOT")
        named = lexer.kind == ATTRIBUTE or lexer.peek() == "="
        name = self._instruction_name() if named else "_"
        if not starts_shape(lexer):
            raise lexer.unexpected("the result's shape", "HMOD-16")
        instruction = self._after_equals(body, name, lexer.start, bare=True)
        computation.set_root(instruction)
        if lexer.kind != END:
            raise lexer.unexpected("the end of the text", "HMOD-17")
        self.computations.insert(0, computation)  # it has the first claim to its name
        module.parameter_layouts = [_in_default_order(p.shape) for p in computation.parameters]
        module.result_layout = _in_default_order(instruction.shape)
        return self._finished(module, computation)

    # -- computations

    def _computation(self) -> Computation:
        lexer = self.lexer
        start = lexer.start
        name = lexer.name("HCOMP-1")
        if name in self.by_name:
            raise lexer.error(f"a computation named {name} is already defined", "HCOMP-2", start)
        computation = self._body(name, start)
        self.by_name[name] = computation
        return computation

    def _body(self, name: str, start: int) -> Computation:
        """Reads `[signature] { instructions }, execution_thread="..."`."""
        lexer = self.lexer
        lexer.enter()
        signature = read_program_shape(lexer) if lexer.value == "(" else None
        lexer.expect("{", "HCOMP-1")
        computation = Computation(name)
        body = Body(computation)
        while lexer.value != "}":
            self._instruction(body)
        if not len(computation):
            raise lexer.error(f"the computation {name} has no instruction", "HCOMP-5")
        computation.set_root(body.root or computation.root)
        self._check_body(body, signature, start)
        lexer.advance()
        lexer.leave()
        self._computation_attributes(computation)
        self.computations.append(computation)
        self.starts[computation] = start
        return computation

    def _computation_attributes(self, computation: Computation) -> None:
        """Reads `, execution_thread="..."` and `, backend_config=...`."""
        lexer = self.lexer
        while lexer.value == "," and lexer.peek() in ("execution_thread=", "backend_config="):
            lexer.advance()
            if lexer.choice(("execution_thread=", "backend_config="), "HCOMP-9") == "execution_thread=":
                computation.execution_thread = lexer.string("HCOMP-9")
            else:
                computation.backend_config = read_config(lexer, "HCOMP-12")

    def _check_body(self, body: Body, signature: ProgramShape | None, start: int) -> None:
        computation = body.computation
        expected = len(body.parameters)
        for number in range(expected):
            if number not in body.parameters:
                message = f"{computation.name}: parameter numbers must be 0..{expected - 1}, {number} is missing"
                raise self.lexer.error(message, "HCOMP-8", start)
        root = computation.root.shape
        if signature is not None and signature.result.static is not root.static:
            message = f"the signature says {signature.result}, the root is {root}"
            raise self.lexer.error(message, "HCOMP-1", start)

    # -- instructions

    def _instruction(self, body: Body) -> None:
        lexer = self.lexer
        start = lexer.start
        is_root = lexer.accept("ROOT")
        name_start = lexer.start
        name = self._instruction_name()
        if name in body.names:
            line = lexer.text.count("\n", 0, body.starts[name]) + 1
            raise lexer.error(f"instruction {name} is already defined in line {line}", "HCOMP-6", name_start)
        instruction = self._after_equals(body, name, start)
        body.names[name] = instruction
        body.starts[name] = name_start
        if is_root and body.root is not None:
            raise lexer.error("a computation has only one ROOT", "HCOMP-4", start)
        if is_root:
            body.root = instruction

    def _instruction_name(self) -> str:
        """Reads `name =`; `name=` without white space too (LEX-5)."""
        lexer = self.lexer
        start, attached = lexer.start, lexer.kind == ATTRIBUTE
        if attached:
            name = lexer.value[:-1]
            lexer.advance()
        else:
            name = lexer.name("HINST-1")
        if name in RESERVED:
            raise lexer.error(f"{name} is a type, not a name; {name}_ is possible", "LEX-9", start)
        if not attached:
            lexer.expect("=", "HINST-1")
        return name

    def _after_equals(self, body: Body, name: str, start: int, bare: bool = False) -> Instruction:
        """Reads `[shape] opcode(operands), attributes` and adds the instruction."""
        lexer = self.lexer
        shape = read_shape(lexer) if starts_shape(lexer) else None
        spelling, wrapped = self._opcode()
        opcode = spelling.op_class.opcode
        fields: dict[str, Any] = {}
        if opcode == "constant" and shape is not None:
            shape = shape.without_element_sizes()
        lexer.expect("(", "HINST-7")
        operands = self._bare_operands(body) if bare else self._content(opcode, shape, fields, body, start)
        lexer.expect(")", "HINST-9")
        extra, called = None, {}
        if lexer.value == ",":
            if opcode == "conditional" and operands:
                spelling = branch_spelling(operands[0].shape.dtype)
            elif "async-start" in spelling.op_class.communication.waits_for:
                spelling = repeating_spelling(opcode, wrapped)
            extra, called = self._attributes(spelling, fields, body)
        return self._add(body, Draft(name, spelling, shape, fields, operands, called, extra, start, wrapped))

    def _opcode(self) -> tuple[Spelling, str | None]:
        """Reads an opcode: how the op is written, and the wrapped opcode if this is the short form of an async one."""
        lexer = self.lexer
        op_class = OPS.get(lexer.value)
        if op_class is not None:
            lexer.advance()
            return spelling_of(op_class), None
        if lexer.kind != WORD:
            raise lexer.unexpected("an opcode", "HINST-6")
        found = short_form(lexer.value)
        if found is None:
            label = "LEX-17" if lexer.value.lower() in OPS else "HINST-6"
            raise lexer.error(f"unknown opcode '{lexer.value[:60]}'", label)
        lexer.advance()
        base, step = found
        return (start_spelling(base) if step == "-start" else spelling_of(OPS[f"async{step}"])), base

    def _content(
        self, opcode: str, shape: Shape | None, fields: dict[str, Any], body: Body, start: int
    ) -> list[Instruction]:
        """Reads what stands in the parentheses: operands, or a number or literal, which `fields` gets."""
        if opcode == "parameter":
            fields["number"] = self._parameter_number(body)
        elif opcode == "constant":
            if shape is None:
                raise self.lexer.error("the shape of a constant must be written", "HINST-1", start)
            fields["literal"] = read_literal(self.lexer, shape)
        else:
            return self._operands(body)
        return []

    def _parameter_number(self, body: Body) -> int:
        start = self.lexer.start
        number = self.lexer.integer("HINST-7", 0)
        if number in body.parameters:
            raise self.lexer.error(f"parameter number {number} is taken twice", "HCOMP-8", start)
        body.parameters.add(number)
        return number

    def _operands(self, body: Body) -> list[Instruction]:
        """Reads operands up to `)`."""
        lexer, names = self.lexer, body.names
        operands: list[Instruction] = []
        while lexer.value != ")":
            value = lexer.value
            found = names.get(value[1:]) if lexer.kind == NAME else None
            if found is not None:
                lexer.advance()
            else:
                found = self._operand(body)
            if lexer.value == "#":
                found = self._element(body, found)
            operands.append(found)
            if lexer.value != ",":
                break
            lexer.advance()
        return operands

    def _operand(self, body: Body) -> Instruction:
        """Reads an operand that is not a plain %name."""
        lexer = self.lexer
        start = lexer.start
        shape = read_shape(lexer) if starts_shape(lexer) else None
        if lexer.kind == WORD and lexer.peek() == "(" and lexer.value not in body.names:
            return self._nested(body, shape, start)
        name_start = lexer.start
        name = lexer.name("HINST-6")
        instruction = body.names.get(name)
        if instruction is None:
            raise lexer.error(f"instruction {name} is not defined above in this computation", "HCOMP-7", name_start)
        if lexer.value == "#":
            instruction = self._element(body, instruction)
        if shape is not None and shape.static is not instruction.shape.static:
            raise lexer.error(f"the operand {name} is {instruction.shape}, not {shape}", "HINST-3", start)
        return instruction

    def _element(self, body: Body, operand: Instruction) -> Instruction:
        """HINST-4: `#N` behind an operand, its element N, and so on; one get-tuple-element for all that say so."""
        lexer = self.lexer
        spelling = spelling_of(OPS["get-tuple-element"])
        while lexer.value == "#":
            start = lexer.start
            lexer.advance()
            index = lexer.integer("HINST-4", 0)
            if (operand, index) not in body.elements:
                name = f"{operand.name}_{index}"
                draft = Draft(name, spelling, None, {"index": index}, [operand], {}, None, start, None)
                body.elements[operand, index] = self._add(body, draft)
            operand = body.elements[operand, index]
        return operand

    def _nested(self, body: Body, shape: Shape | None, start: int) -> Instruction:
        """HINST-4: an instruction in an operand's place, without attributes."""
        lexer = self.lexer
        lexer.enter()
        spelling, wrapped = self._opcode()
        lexer.expect("(", "HINST-4")
        fields: dict[str, Any] = {}
        operands = self._content(spelling.op_class.opcode, shape, fields, body, start)
        lexer.expect(")", "HINST-4")
        lexer.leave()
        name = body.anonymous(spelling.op_class.opcode)
        instruction = self._add(body, Draft(name, spelling, shape, fields, operands, {}, None, start, wrapped))
        body.names[name] = instruction
        body.starts[name] = start
        return instruction

    def _bare_operands(self, body: Body) -> list[Instruction]:
        """HMOD-16: shapes with or without names; a repeated name is one parameter."""
        lexer = self.lexer
        operands: list[Instruction] = []
        parameter = OPS["parameter"]
        while lexer.value != ")":
            if not starts_shape(lexer):
                raise lexer.unexpected("an operand's shape", "HMOD-16")
            shape = read_shape(lexer)
            number = len(body.parameters)
            name = lexer.name("HMOD-16") if lexer.kind in (NAME, WORD, LABEL) else f"_{number}"
            if name not in body.names:
                body.parameters.add(number)
                body.names[name] = body.computation.add(parameter(number, shape), name=name)
            operands.append(body.names[name])
            if not lexer.accept(","):
                break
        return operands

    # -- attributes

    def _attributes(self, spelling: Spelling, fields: dict[str, Any], body: Body) -> tuple[Extra | None, Called]:
        """Reads `, name=value` up to what is not an attribute; the op's own go to `fields`."""
        lexer = self.lexer
        extra: Extra | None = None
        called: Called = {}
        seen: set[str] = set()
        while lexer.value == ",":
            lexer.advance()
            if lexer.kind != ATTRIBUTE:
                raise lexer.unexpected("an attribute", "HINST-9")
            name, start = lexer.value[:-1], lexer.start
            if name in seen:
                raise lexer.error(f"{name} is given twice", "HINST-6")
            seen.add(name)
            lexer.advance()
            if name in spelling.readers:
                field, reader = spelling.readers[name]
                if field in fields:
                    raise lexer.error(f"{name} is given twice, under two spellings", "HINST-6", start)
                fields[field] = reader(lexer)
            elif name in spelling.role_names:
                self._called(called, *spelling.role_names[name])
            elif name in COMMON_READERS:
                extra = extra or Extra()
                COMMON_READERS[name](lexer, extra, body.names)
            elif name in spelling.ignored:
                self._skip_value()
            else:
                allowed = " ".join([*spelling.allowed, *COMMON_READERS])
                message = f"{spelling.op_class.opcode} has no attribute {name}; it may have: {allowed}"
                raise lexer.error(message, "HINST-6", start)
        return extra, called

    def _called(self, called: Called, role: str, position: int | None) -> None:
        """Reads a computation (one of a role's list, where `position` is one) or a list of them."""
        lexer = self.lexer
        if position is not None:
            given: list[Computation | None] = called.setdefault(role, [])
            while len(given) <= position:
                given.append(None)
            given[position] = self._computation_value()
            return
        if called.get(role):
            raise lexer.error(f"{role} is given twice", "HINST-6")
        lexer.expect("{", "HINST-6")
        computations: list[Computation] = []
        while lexer.value != "}":
            computations.append(self._computation_value())
            if not lexer.accept(","):
                break
        lexer.expect("}", "HINST-6")
        called[role] = computations

    def _computation_value(self) -> Computation:
        """Reads a computation's name, or its body in place (HCOMP-3)."""
        lexer = self.lexer
        start = lexer.start
        if lexer.value in ("{", "("):
            return self._body("_", start)
        name = lexer.name("HCOMP-2")
        if name not in self.by_name:
            raise lexer.error(f"computation {name} does not exist (above)", "HCOMP-2", start)
        return self.by_name[name]

    def _skip_value(self) -> None:
        lexer = self.lexer
        if lexer.value == "{":
            lexer.balanced("HINST-6")
        else:
            lexer.advance()

    # -- adding

    def _add(self, body: Body, draft: Draft) -> Instruction:
        """The draft as an instruction; the rules that it breaks are reported where it stands."""
        try:
            if draft.wrapped == draft.spelling.op_class.opcode:
                instruction = self._add_start(body, draft)
            else:
                repeated = self._repeated(draft)
                op, called = self._op(draft)
                instruction = self._added(body, op, draft, called)
                if "async-start" in op.communication.waits_for:
                    self.chains.check(instruction, draft.wrapped, *repeated)
            if instruction.shape.is_tuple:
                self.sizes.check(instruction.shape)
        except ShapeError as error:
            raise self.lexer.error(str(error), error.label, draft.start) from None
        if draft.extra is not None:
            self._set_extra(instruction, draft)
        if instruction.opcode.startswith("async-"):
            self.chains.hand_down(instruction)
        return instruction

    def _repeated(self, draft: Draft) -> tuple[str | None, Computation | None]:
        """Takes what an async-update or async-done repeats of its start: the thread, the computation (HASYNC-8)."""
        if "async-start" not in draft.spelling.op_class.communication.waits_for:
            return None, None
        return draft.fields.pop("async_execution_thread", None), draft.called.pop("calls", [None])[0]

    def _op(self, draft: Draft) -> tuple[Op, list[Computation]]:
        """The op with its attributes, and what it calls."""
        op_class = draft.spelling.op_class
        for field, text in draft.spelling.required:
            if field not in draft.fields:
                message = f"{op_class.opcode}: the attribute {text} is missing"
                raise self.lexer.error(message, "HINST-6", draft.start)
        if draft.shape is None and op_class.shape_required:
            message = f"the shape of {op_class.opcode} must be written"
            raise self.lexer.error(message, "HINST-1", draft.start)
        if op_class.shape_ignored:
            draft.shape = None
        if op_class.result_shape is not None:
            draft.fields[op_class.result_shape.name] = draft.shape or self._implied_shape(op_class, draft)
        op = op_class(**draft.fields)
        if op_class.completed is not Op.completed:
            op = op.completed([operand.shape for operand in draft.operands])
        return op, self._called_in_order(op_class, draft)

    def _implied_shape(self, op_class: type[Op], draft: Draft) -> Shape:
        """The inferred shape, for an op that holds it, of the first operand's element type."""
        operands = [operand.shape for operand in draft.operands]
        assert op_class.result_shape is not None
        if not operands or not operands[0].is_array:
            raise self.lexer.error(f"the shape of {op_class.opcode} must be written", "HINST-1", draft.start)
        hint = {op_class.result_shape.name: operands[0].dtype[()]}
        return infer_shape(op_class(**{**draft.fields, **hint}), operands)

    def _add_start(self, body: Body, draft: Draft) -> Instruction:
        """HASYNC-2: the short form of a start. The op goes to a computation of its own.

        An op that calls no computation by this name may say which: `calls`.
        """
        state = draft.shape
        if state is None or not state.is_tuple or len(state.elements) < 2:
            message = f"the shape of {draft.wrapped}-start must be written: ((operands), result, ...)"
            raise self.lexer.error(message, "HASYNC-1", draft.start)
        thread = draft.fields.pop("async_execution_thread", MAIN_THREAD)
        given = None if "calls" in draft.spelling.op_class.roles else draft.called.pop("calls", None)
        if given:
            wrapped = given[0]
        else:
            draft.shape = state.elements[1]
            op, called = self._op(draft)
            wrapped = wrap(op, [operand.shape for operand in draft.operands], called, draft.shape, self.verify)
            wrapped.execution_thread = thread
            self.computations.append(wrapped)
        start = OPS["async-start"](async_execution_thread=thread, state=state)
        return self._added(body, start, draft, [wrapped], state)

    def _added(
        self, body: Body, op: Op, draft: Draft, called: list[Computation], shape: Shape | None = None
    ) -> Instruction:
        """The instruction in its computation; unchecked, if nothing is to be checked and the text says its shape."""
        shape = shape or draft.shape
        if self.verify or shape is None:
            return body.computation.add(op, draft.operands, called, shape=shape, name=draft.name)
        return body.computation.add_unchecked(op, draft.operands, called, shape, draft.name)

    def _set_extra(self, instruction: Instruction, draft: Draft) -> None:
        extra = instruction.extra = draft.extra
        assert extra is not None
        leaves = self.sizes.leaves(instruction.shape)
        if extra.parameter_replication and len(extra.parameter_replication) != leaves:
            message = f"parameter_replication has {len(extra.parameter_replication)} entries, the shape {leaves} leaves"
            raise self.lexer.error(message, "HCATTR-3", draft.start)
        sharding = extra.sharding
        if sharding is not None and sharding.kind != "tuple" and instruction.shape.is_tuple:  # one for all leaves
            key = sharding, max(1, leaves)
            if key not in self.leaf_shardings:
                self.leaf_shardings[key] = Sharding("tuple", elements=(sharding,) * key[1])
            extra.sharding = self.leaf_shardings[key]

    def _called_in_order(self, op_class: type[Op], draft: Draft) -> list[Computation]:
        called: list[Computation] = []
        for role in (*op_class.roles, *op_class.list_roles):
            given = draft.called.get(role, [])
            if None in given or (not given and role in op_class.roles):
                message = f"{op_class.opcode}: the attribute {role} is missing or not complete"
                raise self.lexer.error(message, "HINST-6", draft.start)
            called += given
        return called
