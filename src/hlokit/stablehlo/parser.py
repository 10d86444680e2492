"""StableHLO text to a tree of operations, in the pretty and in the generic form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hlokit.errors import UnsupportedError
from hlokit.stablehlo.attributes import AttributeReader
from hlokit.stablehlo.lexer import ATTRIBUTE, BLOCK, END, STRING, SYMBOL, TYPE, VALUE, WORD, MlirLexer
from hlokit.stablehlo.tree import (
    Block,
    DialectAttribute,
    Dictionary,
    Function,
    FunctionType,
    Location,
    Operation,
    Program,
    Symbol,
    Type,
)

_RESOURCES = re.compile(r"^\{-#", re.MULTILINE)
_SHORT = {"call": "func.call", "return": "func.return", "constant": "func.constant"}
_PRETTY_DIALECTS = ("stablehlo", "mhlo", "chlo", "func", "builtin", "sdy", "check", "interpreter", "cf")
"""Dialects whose operations are read in their pretty forms; of another dialect's it is not known where they end."""
_OF_FUNCTIONS = ("arg_attrs", "function_type", "res_attrs", "sym_name", "sym_visibility")
_WITH_ATTRIBUTE = ("dense", "dense_resource", "array")


def parse_program(text: str, keeps_types: bool = False) -> tuple[Program, MlirLexer]:
    """The tree of a module's text (or of functions alone), and the lexer, for errors that are found later.

    keeps_types     attributes keep the types of their numbers (`AttributeReader`)

    Raises ParseError with line, column and caret; UnsupportedError for what is legal but not read.
    """
    lexer = MlirLexer("")
    lexer.text = text
    parser = _Parser(lexer, keeps_types)
    return parser.program(), lexer


def program_of(module: Operation, lexer: MlirLexer) -> Program:
    """The program that a module in the generic form is; `lexer` places its errors."""
    parser = _Parser(lexer)
    parser.generic_module(module)
    return parser.result


class _Parser:
    def __init__(self, lexer: MlirLexer, keeps_types: bool = False) -> None:
        self.lexer = lexer
        self.read = AttributeReader(lexer, keeps_types)
        self.result = Program()

    # -- the top level

    def program(self) -> Program:
        lexer = self.lexer
        found = _RESOURCES.search(lexer.text)
        if found is not None:
            lexer.jump(found.start())
            self._resources()
        lexer.jump(0)
        seen = False
        while lexer.kind != END:
            if lexer.kind == ATTRIBUTE:
                self._alias()
            elif lexer.kind == TYPE:
                self._type_alias()
            elif lexer.value == "{-#":
                self._resources()
            elif lexer.value in ("module", "builtin.module", '"builtin.module"') and not seen:
                seen = True
                self._module()
            else:
                self._top_operation()
        if not self.result.functions:
            raise lexer.unexpected("a function")
        return self.result

    def _alias(self) -> None:
        lexer = self.lexer
        name = lexer.value[1:]
        lexer.advance()
        lexer.expect("=")
        value = self.read.attribute()
        if isinstance(value, Location):
            self.result.places[name] = value
        self.read.aliases[name] = value

    def _type_alias(self) -> None:
        lexer = self.lexer
        name = lexer.value[1:]
        lexer.advance()
        lexer.expect("=")
        self.read.types[name] = self.read.type_or_element()

    def _resources(self) -> None:
        """{-# dialect_resources: { builtin: { name: "0x..." } } #-}; the first four bytes are an alignment."""
        lexer = self.lexer
        for _ in lexer.items("{-#", "#-}"):
            kind = lexer.take(WORD, "a section")
            lexer.expect(":")
            for _, entries in self._resource_entries(True):
                if kind == "dialect_resources":
                    self.read.resources.update(entries)

    def _resource_entries(self, nested: bool) -> list[tuple[str, Any]]:
        lexer = self.lexer
        found: list[tuple[str, Any]] = []
        for _ in lexer.items("{", "}"):
            name = lexer.string() if lexer.kind == STRING else lexer.take(WORD, "a resource's name")
            lexer.expect(":")
            if nested:
                found.append((name, dict(self._resource_entries(False))))
            else:
                found.append((name, lexer.string() if lexer.kind == STRING else str(self.read.attribute())))
        return found

    def _module(self) -> None:
        lexer = self.lexer
        if lexer.kind == STRING:
            operation = self._operation()
            self.generic_module(operation)
            return
        lexer.advance()
        if lexer.kind == SYMBOL:
            self.result.name = lexer.symbol()
        if lexer.value == "attributes":
            lexer.advance()
            self.result.attributes = self.read.dictionary()
        lexer.expect("{")
        while lexer.value != "}":
            self._top_operation()
        lexer.expect("}")
        self._optional_location()

    def _top_operation(self) -> None:
        """A function, a mesh, or something that cannot stand here."""
        lexer = self.lexer
        start = lexer.start
        if lexer.value == "func.func":
            self._add(self._function())
        elif lexer.value == "sdy.mesh":
            lexer.advance()
            name = lexer.symbol()
            lexer.expect("=")
            self.result.meshes[name] = lexer.balanced() if lexer.at("<") else self.read.attribute()
            if lexer.at("{"):
                self.result.mesh_attributes[name] = self.read.dictionary()
            self._optional_location()
        elif lexer.kind == STRING and lexer.value in ('"func.func"', '"sdy.mesh"'):
            self._generic_top(self._operation())
        elif lexer.kind in (WORD, STRING):
            name = lexer.value.strip('"')
            raise UnsupportedError(f"{lexer.where(start)}: {name} at the top level of a module is not supported")
        else:
            raise lexer.unexpected("a function")

    def _add(self, function: Function) -> None:
        if function.name in self.result.functions:
            raise self.lexer.error(f"the function @{function.name} is defined twice", function.start)
        self.result.functions[function.name] = function

    def generic_module(self, operation: Operation) -> None:
        self.result.name = str(operation.attributes.get("sym_name", ""))
        self.result.attributes = operation.attributes
        for block in operation.regions:
            for inner in block.operations if block is not None else ():
                self._generic_top(inner)

    def _generic_top(self, operation: Operation) -> None:
        lexer, attributes = self.lexer, operation.attributes
        if operation.name == "sdy.mesh":
            mesh, name = attributes.get("mesh"), str(attributes.get("sym_name"))
            self.result.meshes[name] = mesh.value if isinstance(mesh, DialectAttribute) else mesh
            self.result.mesh_attributes[name] = {k: v for k, v in attributes.items() if k not in ("mesh", "sym_name")}
            return
        kind, name = attributes.get("function_type"), attributes.get("sym_name")
        if operation.name != "func.func":
            message = f"{operation.name} at the top level of a module is not supported"
            raise UnsupportedError(f"{lexer.where(operation.start)}: {message}")
        if not isinstance(kind, FunctionType) or not isinstance(name, str) or len(operation.regions) != 1:
            raise lexer.error("func.func needs sym_name, function_type and one region", operation.start)
        body = operation.regions[0]
        if body is not None and not body.operations and not body.arguments:
            body = None
        arguments = body.arguments if body is not None else [(f"%{i}", t) for i, t in enumerate(kind.inputs)]
        function = Function(
            name,
            arguments,
            _dictionaries(attributes.get("arg_attrs"), len(arguments)),
            list(kind.results),
            _dictionaries(attributes.get("res_attrs"), len(kind.results)),
            body,
            attributes.get("sym_visibility", "public") == "public",
            operation.start,
            str(attributes.get("sym_visibility", "")),
            {k: v for k, v in attributes.items() if k not in _OF_FUNCTIONS},
            operation.place,
        )
        self._add(function)

    # -- functions

    def _function(self) -> Function:
        lexer = self.lexer
        start = lexer.start
        lexer.expect("func.func")
        visibility = lexer.value if lexer.value in ("public", "private", "nested") else ""
        if visibility:
            lexer.advance()
        name = lexer.symbol()
        arguments: list[tuple[str, Type]] = []
        argument_attributes: list[Mapping[str, Any]] = []
        for _ in lexer.items("(", ")"):
            value = f"%{len(arguments)}"
            if lexer.kind == VALUE:
                value = lexer.take(VALUE)
                lexer.expect(":")
            arguments.append((value, self.read.type()))
            argument_attributes.append(self.read.dictionary() if lexer.value == "{" else {})
            self._optional_location()
        results, result_attributes = self._results() if lexer.accept("->") else ([], [])
        attributes = Dictionary()
        if lexer.value == "attributes":
            lexer.advance()
            attributes = self.read.dictionary()
        body = None
        if lexer.value == "{":
            body = self._region(arguments)
        place = self._optional_location()
        is_public = visibility != "private"
        return Function(
            name, arguments, argument_attributes, results, result_attributes, body, is_public, start, visibility,
            attributes, place,
        )  # fmt: skip

    def _results(self) -> tuple[list[Type], list[Mapping[str, Any]]]:
        lexer = self.lexer
        if not lexer.at("("):
            return [self.read.type()], [{}]
        results: list[Type] = []
        attributes: list[Mapping[str, Any]] = []
        for _ in lexer.items("(", ")"):
            results.append(self.read.type())
            attributes.append(self.read.dictionary() if lexer.value == "{" else {})
        return results, attributes

    # -- regions

    def _region(self, arguments: list[tuple[str, Type]] | None = None) -> Block:
        """Reads `{ operations }`, of one block, whose arguments are given or written as its label."""
        lexer = self.lexer
        lexer.enter()
        start = lexer.start
        lexer.expect("{")
        block = Block(list(arguments or ()), [], start)
        if lexer.kind == BLOCK:
            block.arguments += self._label()
        while lexer.value != "}":
            if lexer.kind == BLOCK:
                message = "regions of several blocks (control flow by branches) are not supported"
                raise UnsupportedError(f"{lexer.where(lexer.start)}: {message}")
            block.operations.append(self._operation())
        lexer.expect("}")
        lexer.leave()
        return block

    def _label(self) -> list[tuple[str, Type]]:
        lexer = self.lexer
        lexer.advance()
        arguments = self._typed_values() if lexer.value == "(" else []
        lexer.expect(":")
        return arguments

    def _typed_values(self) -> list[tuple[str, Type]]:
        """Reads `(%a: type, %b: type)`."""
        lexer = self.lexer
        found: list[tuple[str, Type]] = []
        for _ in lexer.items("(", ")"):
            name = lexer.take(VALUE)
            lexer.expect(":")
            found.append((name, self.read.type()))
            self._optional_location()
        return found

    def _optional_location(self) -> Location | None:
        if self.lexer.value == "loc" and self.lexer.peek() == "(":
            return self.read.location()
        return None

    # -- operations

    def _operation(self) -> Operation:
        lexer = self.lexer
        results: list[tuple[str, int]] = []
        start = lexer.start
        if lexer.kind == VALUE:
            results = self._bound()
            start = lexer.start
        if lexer.kind == STRING:
            operation = Operation(lexer.string(), start, results)
            self._generic(operation)
        elif lexer.kind == WORD:
            name = lexer.value
            lexer.advance()
            operation = Operation(_SHORT.get(name, name), start, results)
            if "." not in operation.name:
                raise lexer.error(f"expected an operation, found '{name[:60]}'", start)
            dialect, _, kind = operation.name.partition(".")
            if dialect not in ("stablehlo", "mhlo"):
                kind = operation.name
            if dialect not in _PRETTY_DIALECTS and kind not in _FORMS:
                message = f"{operation.name} is not an operation of StableHLO, nor read beside it"
                raise UnsupportedError(f"{lexer.where(start)}: {message}")
            _FORMS.get(kind, _Parser._pretty)(self, operation)
        else:
            raise lexer.unexpected("an operation")
        operation.place = self._optional_location() or operation.place
        return operation

    def _bound(self) -> list[tuple[str, int]]:
        """Reads `%a, %b:2 =`."""
        lexer = self.lexer
        found: list[tuple[str, int]] = []
        while True:
            name = lexer.take(VALUE)
            if "#" in name:
                raise lexer.error(f"{name} cannot be bound")
            count = 1
            if lexer.accept(":"):
                count = lexer.integer()
                if not 1 <= count <= 1_000_000:
                    raise lexer.error(f"{count} results")
            found.append((name, count))
            if not lexer.accept(","):
                break
        lexer.expect("=")
        return found

    def _generic(self, operation: Operation) -> None:
        """Reads what follows the quoted name: (operands) <{properties}> ({regions}) {attributes} : type."""
        lexer = self.lexer
        operation.operands = self._values_in_parentheses()
        if lexer.value == "[":
            raise UnsupportedError(f"{lexer.where(lexer.start)}: {operation.name}: successors are not supported")
        if lexer.accept("<"):
            operation.attributes.update(self.read.dictionary())
            lexer.expect(">")
        if lexer.at("("):
            for _ in lexer.items("(", ")"):
                operation.regions.append(self._region())
        if lexer.value == "{":
            operation.attributes.update(self.read.dictionary())
        lexer.expect(":")
        found = self.read.function_type()
        operation.operand_types, operation.result_types = found.inputs, found.results

    def _values_in_parentheses(self) -> list[str]:
        return [self.lexer.take(VALUE) for _ in self.lexer.items("(", ")")]

    def _pretty(self, operation: Operation) -> None:
        """Reads operands, `name = value`, words and lists, up to the types."""
        self._items(operation, 0)
        self._types(operation)

    def _constant(self, operation: Operation) -> None:
        """{attributes} dense<...> : type; the generic form without a name where value and result differ in type."""
        if self.lexer.at("("):
            self._generic(operation)
            return
        if self.lexer.value == "{":
            operation.attributes.update(self.read.dictionary())
        operation.attributes["value"] = self.read.attribute()
        self._types(operation)

    def _items(self, operation: Operation, depth: int) -> None:
        lexer, read = self.lexer, self.read
        while True:
            if lexer.kind == VALUE:
                operation.operands.append(lexer.take(VALUE))
            elif lexer.kind == STRING:
                operation.words.append(lexer.string())
            elif lexer.kind == SYMBOL:
                operation.words.append(Symbol(lexer.symbol()))
            elif lexer.kind == WORD:
                if not self._word(operation):
                    return
            elif lexer.kind == ATTRIBUTE:
                operation.words.append(read.attribute())
            elif lexer.value == "(" and depth == 0:
                lexer.advance()
                self._items(operation, 1)
                lexer.expect(")")
            elif lexer.value == "[":
                operation.words.append(lexer.balanced() if lexer.peek() == "{" else self._slices())
            elif lexer.value == "{" and operation.name == "sdy.all_reduce" and not operation.operands:
                operation.words.append(lexer.balanced())
            elif lexer.value == "{":
                operation.attributes.update(read.dictionary())
            elif lexer.value == "<":
                operation.words.append(lexer.balanced())
            elif not lexer.accept(","):
                return

    def _word(self, operation: Operation) -> bool:
        """Reads a word of the pretty form; False where it begins the next operation."""
        lexer, read = self.lexer, self.read
        word = lexer.value
        following = lexer.peek()
        if following == "=":
            self._name()
            value = self._convolution_dimensions() if word == "dim_numbers" else read.attribute(typed=False)
            if lexer.value == "x":
                lexer.advance()
                value = (value, read.attribute())
            operation.attributes[word] = value
        elif word in _WITH_ATTRIBUTE and following == "<":
            operation.words.append(read.attribute())
        elif "." in word or word in _SHORT or word == "loc":
            return False
        else:
            operation.words.append(word)
            lexer.advance()
        return True

    def _name(self) -> str:
        """Reads `name =`."""
        name = self.lexer.take(WORD)
        self.lexer.expect("=")
        return name

    def _slices(self) -> list[tuple[int, ...]]:
        """Reads `[0:4:2, 3]`."""
        lexer = self.lexer
        found: list[tuple[int, ...]] = []
        for _ in lexer.items("[", "]"):
            numbers = [lexer.integer()]
            while lexer.accept(":"):
                numbers.append(lexer.integer())
            found.append(tuple(numbers))
        return found

    def _convolution_dimensions(self) -> str:
        """Reads `[b, f, 0]x[o, i, 0]->[b, f, 0]`; gives it as written."""
        lexer = self.lexer
        parts = [lexer.balanced() if lexer.value == "[" else ""]
        for mark in ("x", "->"):
            lexer.expect(mark)
            if lexer.value != "[":
                raise lexer.unexpected("'['")
            parts.append(lexer.balanced())
        return "[{}]x[{}]->[{}]".format(*parts)

    def _types(self, operation: Operation) -> None:
        """Reads `: (operands) -> results`, `: operands -> results` or the results' types alone."""
        lexer, read = self.lexer, self.read
        if not lexer.accept(":"):
            return
        found = read.types_with_commas()
        if lexer.accept("->"):
            operation.operand_types, operation.result_types = tuple(found), read.result_types()
        elif isinstance(found[0], FunctionType):
            operation.operand_types, operation.result_types = found[0].inputs, found[0].results
        else:
            count = sum(count for _, count in operation.results)
            operation.result_types = tuple(found[-count:]) if count else ()
            if not count and len(found) == len(operation.operands):
                operation.operand_types = tuple(found)

    def _reduce(self, operation: Operation) -> None:
        """(%a init: %b), (...) applies OP across dimensions = [..] : type, or ... : type reducer(...) (...) {...}."""
        lexer, read = self.lexer, self.read
        inits: list[str] = []
        while lexer.accept("("):
            operation.operands.append(lexer.take(VALUE))
            lexer.expect("init")
            lexer.expect(":")
            inits.append(lexer.take(VALUE))
            lexer.expect(")")
            lexer.accept(",")
        operation.operands += inits
        if lexer.accept("applies"):
            operation.attributes["applies"] = lexer.take(WORD, "an operation")
        lexer.expect("across")
        lexer.expect("dimensions")
        lexer.expect("=")
        operation.attributes["dimensions"] = read.attribute()
        if lexer.value == "{":
            operation.attributes.update(read.dictionary())
        self._types(operation)
        operation.place = self._optional_location()
        if "applies" in operation.attributes:
            return
        lexer.expect("reducer")
        pairs = [self._typed_values()]
        while lexer.value == "(":
            pairs.append(self._typed_values())
        if any(len(pair) != 2 for pair in pairs):
            raise lexer.error("a reducer takes pairs of values")
        operation.regions.append(self._region([pair[0] for pair in pairs] + [pair[1] for pair in pairs]))

    def _while(self, operation: Operation) -> None:
        """(%i = %a, ...) : types attributes {...} cond {...} do {...}."""
        lexer, read = self.lexer, self.read
        names: list[str] = []
        for _ in lexer.items("(", ")"):
            names.append(lexer.take(VALUE))
            lexer.expect("=")
            operation.operands.append(lexer.take(VALUE))
        types: list[Type] = []
        if lexer.accept(":"):
            types = read.types_with_commas() if lexer.value != "cond" else []
        if len(types) != len(names):
            raise lexer.error(f"{len(names)} values of {len(types)} types")
        if lexer.value == "attributes":
            lexer.advance()
            operation.attributes.update(read.dictionary())
        arguments = list(zip(names, types))
        lexer.expect("cond")
        operation.regions.append(self._region(arguments))
        lexer.expect("do")
        operation.regions.append(self._region(arguments))
        operation.operand_types = operation.result_types = tuple(types)

    def _expectation(self, operation: Operation) -> None:
        """%a, dense<...> : type {attributes}."""
        lexer = self.lexer
        operation.operands.append(lexer.take(VALUE))
        lexer.expect(",")
        operation.attributes["value"] = self.read.attribute()
        if lexer.at("{"):
            operation.attributes.update(self.read.dictionary())

    def _scan(self, operation: Operation) -> None:
        """(%a, ..) inits (%b, ..) dimension=0 attributes {...} {...} : type."""
        lexer, read = self.lexer, self.read
        inputs = self._values_in_parentheses()
        lexer.expect("inits")
        inits = self._values_in_parentheses()
        operation.operands = inputs + inits
        operation.attributes["operandSegmentSizes"] = (len(inputs), len(inits))
        while lexer.kind == WORD and lexer.peek() == "=":
            name = self._name()
            operation.attributes[name] = read.attribute(typed=False)
        if lexer.accept("attributes"):
            operation.attributes.update(read.dictionary())
        operation.regions.append(self._region())
        self._types(operation)

    def _manual_computation(self, operation: Operation) -> None:
        """(%a, %b) in_shardings=[..] out_shardings=[..] manual_axes={..} (%c: type) {...} : type, after <"name"> of a
        named computation."""
        lexer, read = self.lexer, self.read
        if lexer.value == "<":
            operation.words.append(lexer.balanced())
        operation.operands = self._values_in_parentheses()
        while lexer.kind == WORD and lexer.peek() == "=":
            name = self._name()
            operation.attributes[name] = lexer.balanced()
        arguments = self._typed_values()
        operation.regions.append(self._region(arguments))
        if lexer.value == "{":
            operation.attributes.update(read.dictionary())
        self._types(operation)


def _dictionaries(value: Any, count: int) -> list[Mapping[str, Any]]:
    given: list[Any] = value if isinstance(value, list) else []  # pyright: ignore[reportUnknownVariableType]
    found: list[Mapping[str, Any]] = [v if isinstance(v, Dictionary) else Dictionary() for v in given[:count]]
    return found + [Dictionary()] * (count - len(found))


_FORMS = {
    "constant": _Parser._constant,  # pyright: ignore[reportPrivateUsage]
    "arith.constant": _Parser._constant,  # pyright: ignore[reportPrivateUsage]
    "sdy.constant": _Parser._constant,  # pyright: ignore[reportPrivateUsage]
    "check.expect_eq_const": _Parser._expectation,  # pyright: ignore[reportPrivateUsage]
    "check.expect_almost_eq_const": _Parser._expectation,  # pyright: ignore[reportPrivateUsage]
    "chlo.scan": _Parser._scan,  # pyright: ignore[reportPrivateUsage]
    "chlo.constant": _Parser._constant,  # pyright: ignore[reportPrivateUsage]
    "reduce": _Parser._reduce,  # pyright: ignore[reportPrivateUsage]
    "while": _Parser._while,  # pyright: ignore[reportPrivateUsage]
    "sdy.manual_computation": _Parser._manual_computation,  # pyright: ignore[reportPrivateUsage]
    "sdy.named_computation": _Parser._manual_computation,  # pyright: ignore[reportPrivateUsage]
}
