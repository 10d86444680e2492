"""`hlokit extract` and `hlokit cost`."""

import json
from pathlib import Path

import numpy as np
import pytest

import hlokit as hk
from hlokit.judge.extract import extracted
from hlokit.tools.main import main
from tests.golden.programs import BUNDLED, program_names, read_program
from tests.judge.test_reduce import DEEP

X, Y = (np.linspace(a, a + 1, 2048, dtype=np.float32).reshape(64, 32) for a in (0.0, 0.5))


def run(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([*map(str, words)])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def values_of(module: hk.HloModule, *arguments: object) -> dict[str, object]:
    found: dict[str, object] = {}
    hk.evaluate(module, *arguments, after=lambda i, v: found.setdefault(i.name, v[0]))
    return found


@pytest.mark.parametrize("name", ["q", "r", "loop", "v", "e", "w", "n"])
def test_the_same_value_as_in_the_whole(name: str) -> None:
    """Also in called computations, where it runs for the first time."""
    module = hk.parse(DEEP)
    case = extracted(module, name, arguments=[X, Y])
    assert case.arguments is not None
    result = hk.evaluate(case.module, *case.arguments)
    wanted = values_of(module, X, Y)[name]
    np.testing.assert_equal(result, wanted)
    assert sum(i.opcode != "parameter" for i in case.module.entry.instructions) <= 2


def test_a_range() -> None:
    case = extracted(hk.parse(DEEP), "q", "p", arguments=[X, Y])
    opcodes = [i.opcode for i in case.module.entry.post_order()]
    assert {"add", "while", "multiply"} <= set(opcodes)
    np.testing.assert_equal(hk.evaluate(case.module, *(case.arguments or ())), values_of(hk.parse(DEEP), X, Y)["q"])


def test_every_instruction_of_a_program_stands_alone() -> None:
    program = read_program(BUNDLED, program_names(BUNDLED)[0])
    module = hk.parse(program.hlo)
    values = values_of(module, *program.inputs)
    for instruction in module.entry.post_order():
        if instruction.opcode not in ("parameter", "constant"):
            case = extracted(module, instruction.name, arguments=program.inputs)
            result = hk.evaluate(case.module, *(case.arguments or ()))
            np.testing.assert_equal(result, values[instruction.name])


def test_the_header_says_nothing_of_parameters_that_are_not_there() -> None:
    """JAX's programs name, for each parameter, whether its sharding may be chosen."""
    module = hk.parse("HloModule m\nENTRY e { x = f32[2] parameter(0) y = f32[2] parameter(1) s = f32[2] add(x, y) "
                      "ROOT n = f32[2] negate(s) }")
    module.allow_spmd_sharding_propagation_to_parameters = (True, True)
    assert "propagation_to_parameters={true,true}" in str(module)
    assert "propagation_to" not in str(extracted(module, "n").module)
    assert "propagation_to_parameters={true,true}" in str(extracted(module, "s").module)


@pytest.mark.parametrize(
    ("name", "first", "message"),
    [
        ("nobody", "", "no instruction nobody$"),
        ("looq", "", r"no instruction looq; did you mean loop"),
        ("p", "q", "does not depend on"),
        ("e", "p", "not in the same computation"),
    ],
)
def test_bad_names(name: str, first: str, message: str) -> None:
    with pytest.raises(hk.ArgumentError, match=message):
        extracted(hk.parse(DEEP), name, first)


def test_extract_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "deep.hlo"
    file.write_text(DEEP, encoding="utf-8")
    assert run("extract", file, "--instruction", "q") == 0
    assert [i.opcode for i in hk.parse(capsys.readouterr().out).entry.post_order()] == ["parameter"] * 2 + ["multiply"]
    assert run("extract", file, "--instruction", "q", "--from", "p", "--random", 1, "--output", tmp_path / "q.hlo") == 0
    assert len(np.load(tmp_path / "q.npz").files) == len(hk.load(tmp_path / "q.hlo").entry.parameters)
    assert run("run", tmp_path / "q.hlo", "--input", tmp_path / "q.npz") == 0
    assert run("extract", file, "--instruction", "nobody") == 2
    assert "no instruction nobody" in capsys.readouterr().err


def test_cost_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "dot.hlo"
    file.write_text(
        "HloModule m\nENTRY e { x = f32[4,8] parameter(0) y = f32[8,2] parameter(1)\n"
        "d = f32[4,2] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}\nROOT t = f32[4,2] tanh(d) }",
        encoding="utf-8",
    )
    assert run("cost", file, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [(i["instruction"], i["flops"], i["transcendentals"]) for i in told["instructions"]] == [
        ("d", 128, 0),
        ("t", 0, 8),
    ]
    assert told["flops"] == 128
    assert run("cost", file, "--top", 1, "--sort", "bytes") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "%d = f32[4,2]{1,0} dot in %e" in lines[1].replace("f32[4,2] dot", "f32[4,2]{1,0} dot")
    assert lines[2] == "... and 1 more (--top 0 shows them)"
    assert run("cost", file, "--top", -1) == 2
