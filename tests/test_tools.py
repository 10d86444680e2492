"""The command: each subcommand as a process of its own would see it."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hlokit as hk
from hlokit.tools.main import main

ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / "examples/data/layernorm_grad.hlo.txt"
ARRAYS = ROOT / "examples/data/layernorm_grad.npz"
ADD = "HloModule m\nENTRY e {\n  x = f32[2] parameter(0)\n  y = f32[2] parameter(1)\n  ROOT r = f32[2] add(x, y)\n}\n"


def command(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Exit status, standard output, standard error."""
    with pytest.raises(SystemExit) as exit:
        main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return int(exit.value.code or 0), captured.out, captured.err


@pytest.fixture
def add(tmp_path: Path) -> Path:
    path = tmp_path / "add.hlo"
    path.write_text(ADD)
    return path


def test_run_with_recorded_inputs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "out.npz"
    status, shown, _ = command(capsys, "run", PROGRAM, "--input", ARRAYS, "--output", out)
    assert status == 0 and "out2 = f32[10]" in shown
    recorded, got = np.load(ARRAYS), np.load(out)
    for name in ("out0", "out1", "out2"):
        np.testing.assert_allclose(got[name], recorded[name], rtol=1e-4, atol=3e-4)


def test_run_inputs_by_parameter_name(capsys: pytest.CaptureFixture[str], add: Path, tmp_path: Path) -> None:
    arrays = tmp_path / "in.npz"
    np.savez(arrays, x=np.float32([1, 2]), y=np.float32([10, 20]))
    status, shown, _ = command(capsys, "run", add, "--input", arrays)
    assert status == 0 and "[11. 22.]" in shown


def test_run_random_is_deterministic(capsys: pytest.CaptureFixture[str], add: Path) -> None:
    first = command(capsys, "run", add, "--random", 3)
    assert first == command(capsys, "run", add, "--random", 3)
    assert first[1] != command(capsys, "run", add, "--random", 4)[1]


def test_run_types_that_numpy_lacks(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    program, arrays, out = tmp_path / "m.hlo", tmp_path / "in.npz", tmp_path / "out.npz"
    program.write_text("ENTRY e {\n  x = bf16[2] parameter(0)\n  ROOT r = bf16[2] negate(x)\n}\n")
    np.savez(arrays, in0=np.uint16([0x3F80, 0x4000]))
    assert command(capsys, "run", program, "--input", arrays, "--output", out)[0] == 0
    assert np.load(out)["out0"].tolist() == [0xBF80, 0xC000]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "ADD"], "takes 2 argument"),
        (["run", "ADD", "--input", "MISSING"], "missing: no such file"),
        (["check", "MISSING"], "missing: no such file"),
        (["check", "WRONG"], "HINST-2"),
        (["print", "WRONG"], "line 3, column"),
        (["ops", "reduc"], "did you mean"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_errors(
    capsys: pytest.CaptureFixture[str], add: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    wrong = tmp_path / "wrong.hlo"
    wrong.write_text("ENTRY e {\n  x = f32[2] parameter(0)\n  ROOT r = f32[3] negate(x)\n}\n")
    names = {"ADD": add, "MISSING": tmp_path / "missing", "WRONG": wrong}
    status, _, error = command(capsys, *(names.get(a, a) for a in arguments))
    assert status == (1 if arguments == ["check", "WRONG"] else 2)
    assert message in error and len(error.splitlines()) <= 32


def test_check(capsys: pytest.CaptureFixture[str], add: Path) -> None:
    status, shown, _ = command(capsys, "check", add)
    assert status == 0 and "m: ok, 1 computation, 3 instructions" in shown and "-> f32[2]" in shown


def test_print_and_convert_round_trip(capsysbinary: pytest.CaptureFixture[bytes], add: Path, tmp_path: Path) -> None:
    proto, text, dot = tmp_path / "m.pb", tmp_path / "m.txt", tmp_path / "m.dot"
    for arguments in ([add, proto], [proto, text], [proto, dot]):
        with pytest.raises(SystemExit) as exit:
            main(["convert", *map(str, arguments)])
        assert not exit.value.code
    with pytest.raises(SystemExit):
        main(["print", str(add)])
    assert capsysbinary.readouterr().out == text.read_bytes()
    assert "subgraph cluster_0" in dot.read_text() and "->" in dot.read_text()


@pytest.mark.parametrize(
    ("name", "phrase"),
    [
        ("run", "an .npz with an array for each parameter"),
        ("check", "number of replicas that run them"),
        ("print", "XLA's text presets"),
        ("convert", "by default it follows from the suffix of the output's name"),
        ("opt", "without it the default pipeline"),
        ("compile", "by default standard output"),
        ("simulate", "latency of a link, as 1us"),
        ("ops", "an opcode, e.g. reduce-window"),
    ],
)
def test_help_says_what_parameters_are(capsys: pytest.CaptureFixture[str], name: str, phrase: str) -> None:
    status, shown, _ = command(capsys, name, "--help")
    assert status == 0 and phrase in " ".join(shown.replace("│", " ").split())


def test_every_op_has_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    from hlokit.hlo.op import OPS

    status, shown, _ = command(capsys, "ops")
    assert status == 0 and [line.split()[0] for line in shown.splitlines()] == sorted(OPS)
    for opcode in OPS:
        status, shown, _ = command(capsys, "ops", opcode)
        assert status == 0 and shown.startswith(f"# {opcode}\n")


def test_opt_loads_passes_of_ones_own(capsys: pytest.CaptureFixture[str], add: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "from hlokit.passes.pipeline import Pass\n"
        "class Swapped(Pass):\n"
        "    'Swaps the operands of the root.'\n"
        "    name = 'swap-the-root'\n"
        "    def run(self, module):\n"
        "        root = module.entry.root\n"
        "        module.entry.replace(root, module.entry.add(root.op, root.operands[::-1]))\n"
        "        return True\n"
    )
    status, shown, _ = command(capsys, "opt", add, "--load", own, "--passes", "swap-the-root,dce")
    assert status == 0 and "add(%y, %x)" in shown
    assert "Swaps the operands" in command(capsys, "opt", "--list-passes", "--load", own)[1]
    assert command(capsys, "opt")[0] == 2


def test_opt_shows_each_pass(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    program = tmp_path / "m.hlo"
    program.write_text("ENTRY e {\n  x = f32[2] parameter(0)\n  y = f32[2] negate(x)\n  ROOT r = f32[2] negate(y)\n}\n")
    status, shown, _ = command(capsys, "opt", program, "--passes", "algsimp,dce", "--print-after-all")
    assert status == 0 and shown.count("HloModule") == 2
    assert "// after algsimp\n" in shown and "// after dce: unchanged" in shown
    assert command(capsys, "opt", program)[1].count("negate") == 0
    assert "algsimp" in command(capsys, "opt", program, "--list-passes")[1]
    status, _, error = command(capsys, "opt", program, "--passes", "nope")
    assert status == 2 and "no pass 'nope'; one of algsimp" in error
    assert "did you mean algsimp" in command(capsys, "opt", program, "--passes", "algsim")[2]


@pytest.mark.slow
def test_installed_command() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).parent / "hlokit"), "check", str(PROGRAM)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_programs_in_the_test_data_check(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for path in sorted((ROOT / "tests/data/programs").glob("*.hlo.txt.gz"))[:5]:
        copy = tmp_path / "m.txt"
        copy.write_bytes(gzip.decompress(path.read_bytes()))
        assert command(capsys, "check", copy)[0] == 0, path


_NAMED = """HloModule m

ENTRY e {
  x = f32[3] parameter(0)
  ROOT y = f32[3] exponential(x), metadata={op_name="größe → 1" source_file="/tmp/données 1/模.py" source_line=3}
}
"""


def test_commands_in_a_locale_of_ascii(tmp_path: Path) -> None:
    """Programs, dumps and headers are UTF-8 in any locale, in folders of any name; nothing takes the locale's encoding."""
    folder = tmp_path / "a folder of données"
    folder.mkdir()
    (folder / "größe 1.hlo").write_text(_NAMED, encoding="utf-8")
    script = """
import sys
from hlokit.tools.main import main
name = sys.argv[1]
for words in (
    ["print", name], ["check", name], ["compile", name, "--emit", "llvm", "--output", "text.ll"],
    ["compile", name, "--emit", "obj", "--output", "made.o", "--target", "aarch64"], ["convert", name, "made.mlir"],
    ["convert", name, "made.hlo"], ["convert", name, "made.dot"],
    ["run", name, "--random", "0", "--xla_dump_to=dumped"],
    ["run", name, "--random", "0", "--profile", "trace.json", "--backend", "cpu"],
):
    try:
        main(words)
    except SystemExit as end:
        assert not end.code, (words, end.code)
"""
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "HLOKIT_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-X", "warn_default_encoding", "-W", "error::EncodingWarning", "-c", script, "größe 1.hlo"],
        cwd=folder, env={**os.environ, **locale}, capture_output=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert str(hk.load(folder / "made.hlo")) == str(hk.parse(_NAMED))
    assert any((folder / "dumped").glob("*.txt")) and "ENTRY %e" in done.stdout.decode()
    assert {"text.ll", "made.o", "made.h", "made.mlir", "made.dot", "trace.json"} <= {path.name for path in folder.iterdir()}
