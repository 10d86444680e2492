"""What all subcommands of the command share: exit statuses, `-`, pipes, messages; and check, which finds everything."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu.jit.cache import Cache, Key
from hlokit.text.findings import findings
from hlokit.tools import files
from hlokit.tools.main import main
from tests.test_files import DATA, SNAPSHOT, UNOPTIMIZED

ADD = "HloModule m\nENTRY e {\n  x = f32[2] parameter(0)\n  y = f32[2] parameter(1)\n  ROOT r = f32[2] add(x, y)\n}\n"
NEGATE = "HloModule m\nENTRY e {\n  ROOT r = f32[2] negate(x)\n}\n".replace("ROOT", "x = f32[2] parameter(0)\n  ROOT")
WRONG = NEGATE.replace("ROOT r = f32[2]", "ROOT r = f32[3]")
SYNTAX = NEGATE.replace("ROOT r = f32[2]", "ROOT r = f32[2")
SUM = "sum { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] add(a, b) }\n"
NAN = "HloModule m\nENTRY e {\n  x = f32[2] parameter(0)\n  y = f32[2] log(x)\n  ROOT r = f32[2] add(y, y)\n}\n"
DEADLOCK = (
    "HloModule m, replica_count=2\n" + SUM + "t { a = f32[] parameter(0)\n ROOT r = f32[] all-reduce(a), replica_groups={}, to_apply=sum }\n"
    "f { ROOT a = f32[] parameter(0) }\n"
    "ENTRY e { i = u32[] replica-id()\n c = pred[] convert(i)\n x = f32[] constant(1)\n"
    " ROOT r = f32[] conditional(c, x, x), true_computation=t, false_computation=f }\n"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With files of all sorts in it, where the commands run."""
    for name, text in {
        "add.hlo": ADD, "negate.hlo": NEGATE, "wrong.hlo": WRONG, "syntax.hlo": SYNTAX, "empty": "", "nan.hlo": NAN,
        "deadlock.hlo": DEADLOCK, "sum.hlo": "HloModule m\n" + SUM.replace("sum", "ENTRY e"),
    }.items():  # fmt: skip
        (tmp_path / name).write_text(text)
    (tmp_path / "has_module").write_text("#!/bin/sh\ngrep -q HloModule.m $1\n")
    (tmp_path / "has_module").chmod(0o755)
    (tmp_path / "garbage").write_bytes(bytes(range(256)))
    (tmp_path / "folder").mkdir()
    np.savez(tmp_path / "long.npz", x=np.ones(3, np.float32), y=np.ones(3, np.float32))
    np.savez(tmp_path / "one.npz", x=np.ones(2, np.float32))
    np.savez(tmp_path / "minus.npz", x=-np.ones(2, np.float32))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HLOKIT_CACHE_DIR", str(tmp_path / "cache"))
    files.standard_input.cache_clear()
    return tmp_path


def command(capsys: pytest.CaptureFixture[str], line: str) -> tuple[int, str, str]:
    """Exit status, standard output, standard error."""
    with pytest.raises(SystemExit) as end:
        main(line.split())
    captured = capsys.readouterr()
    return int(end.value.code or 0), captured.out, captured.err


# -- exit statuses

_READERS = ("run", "check", "print", "opt", "compile", "cache why", "convert", "partition", "simulate")
_REST = {"partition": "--mesh a=2", "convert": "out.hlo", "simulate": "--topology ring:2 --bandwidth 1GB/s --latency 1us"}
_BAD_FILES = {
    "missing": "missing: no such file or directory",
    "folder": "folder: is a directory; expected one of its files",
    "empty": "empty: found an empty file",
    "garbage": "garbage: found binary data",
    "syntax.hlo": "syntax.hlo: line 4, column 18: expected ']'",
    "long.npz": "long.npz: found an archive of NumPy arrays",
}


@pytest.mark.parametrize("file", _BAD_FILES)
@pytest.mark.parametrize("name", _READERS)
def test_files_that_are_no_programs_are_status_2(capsys: pytest.CaptureFixture[str], folder: Path, name: str, file: str) -> None:
    status, out, error = command(capsys, f"{name} {file} {_REST.get(name, '')}")
    expected = "folder: no files there" if (name, file) == ("check", "folder") else _BAD_FILES[file]
    assert (status, out) == (2, "") and error.startswith(f"error: {expected}")
    assert not (folder / "out.hlo").exists()


@pytest.mark.parametrize("name", [*_READERS, "ops", "explain", "cache show", "cache clear"])
def test_wrong_usage_is_status_2(capsys: pytest.CaptureFixture[str], folder: Path, name: str) -> None:
    status, out, error = command(capsys, f"{name} negate.hlo {_REST.get(name, '')} --bogus 3")
    assert (status, out) == (2, "") and error.startswith("error: ") and f"hlokit {name} --help" in error
    assert len(error.splitlines()) == 1


_STATUSES = {
    "run negate.hlo --random 1": 0, "check negate.hlo": 0, "print negate.hlo": 0, "convert negate.hlo out.mlir": 0,
    "opt negate.hlo": 0, "compile negate.hlo": 0, "cache why negate.hlo": 0, "cache show": 0, "cache clear": 0,
    f"simulate negate.hlo {_REST['simulate']}": 0, "partition negate.hlo --mesh a=2 --explain --topology ring:2": 0, "ops add": 0, "explain BCAST-3": 0, "--help": 0, "--version": 0,
    "diff negate.hlo negate.hlo": 0, "view negate.hlo --graph": 0, "cost negate.hlo": 0, "bench negate.hlo --repeat 1 --warm-up 0": 0,
    "extract nan.hlo --instruction y": 0, "debug negate.hlo --random 0 --command quit": 0, "completion bash": 0,
    "compare negate.hlo --engines passes": 0, "reduce negate.hlo --check ./has_module": 0, "fuzz --engines passes --count 1": 0,
    # 1: a finding or a difference
    "diff negate.hlo add.hlo": 1, "view deadlock.hlo": 1,
    "check wrong.hlo": 1, "check negate.hlo wrong.hlo add.hlo": 1, "check deadlock.hlo": 1, "run deadlock.hlo": 1,
    "run nan.hlo --input minus.npz --trap-nan": 1, f"simulate deadlock.hlo {_REST['simulate']}": 1,
    # 2: bad input, file or usage
    "check --replicas 1 wrong.hlo": 1, "check negate.hlo missing wrong.hlo": 2, "check wrong.hlo syntax.hlo": 2, "run wrong.hlo --random 1": 2,
    "print wrong.hlo": 2, "run add.hlo": 2, "run add.hlo --input long.npz": 2, "run add.hlo --input one.npz": 2,
    "run add.hlo --input folder": 2, "run add.hlo --input add.hlo": 2, "run add.hlo --random -1": 2,
    "run add.hlo --random 1 --output no/such/folder.npz": 2, "run add.hlo --random 1 --replicas 0": 2,
    "run add.hlo --random 1 --after z": 2, "run add.hlo --random 1 --after r --backend cpu": 2,
    "run nan.hlo --random 1 --trap-nan --shadow s": 2, "run - --input -": 2, "ops nope": 2, "explain NOPE-1": 2,
    "opt": 2, "opt add.hlo --passes nope": 2, "opt add.hlo --load missing.py": 2, "convert add.hlo x.svg": 2, "frob": 2,
    "compile add.hlo --target nope": 2, "convert add.hlo folder": 2, "simulate add.hlo --topology x": 2,
    "simulate add.hlo --topology star:2 --bandwidth 1GB/s --latency 1us": 2, "print add.hlo --form nope": 2,
    "diff negate.hlo missing": 2, "diff negate.hlo": 2, "view missing": 2, "cost wrong.hlo": 2, "cost negate.hlo --top -1": 2,
    "bench negate.hlo --repeat 0": 2, "extract nan.hlo --instruction z": 2, "debug missing": 2, "debug negate.hlo --random 0 --command frob": 2,
    "completion tcsh": 2, "compare negate.hlo --engines nope": 2, "compare missing": 2, "reduce negate.hlo": 2, "reduce missing --check true": 2, "reduce negate.hlo --check true": 2, "reduce negate.hlo --check false": 2, "fuzz --ops=": 2,
    "compare . --engines strict": 2,
    "fuzz --engines nope": 2, "fuzz --count 0": 2, "check negate.hlo missing --json": 2,
    "partition negate.hlo": 2, "partition negate.hlo --mesh a": 2, "partition negate.hlo --mesh a=2 --topology ring:2": 2,
    "partition deadlock.hlo": 2, "partition wrong.hlo --mesh a=2": 2,
}  # fmt: skip


@pytest.mark.parametrize("line", _STATUSES)
def test_exit_statuses(capsys: pytest.CaptureFixture[str], folder: Path, line: str) -> None:
    status, _, error = command(capsys, line)
    assert status == _STATUSES[line], error
    is_told_there = not (line.startswith("diff") and status == 1) and "--json" not in line  # else on standard output
    assert error.startswith("error: ") == (bool(status) and is_told_there) and "Traceback" not in error


def test_an_interrupt_is_status_130(capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(path: Path, **_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hlokit.tools.convert.loaded", interrupted)
    assert command(capsys, "print negate.hlo") == (130, "", "error: interrupted\n")


@pytest.mark.skipif(sys.platform == "win32", reason="pipes are POSIX's")
@pytest.mark.parametrize("line", ["print large.hlo", "ops add", "ops --help", "check many"])
def test_a_pipe_that_nobody_reads_is_silent(folder: Path, line: str) -> None:
    """As `python -m hlokit`; standard output is a pipe whose other end is closed."""
    body = "".join(f"  v{i} = f32[2] negate(x)\n" for i in range(5000))
    (folder / "large.hlo").write_text(NEGATE.replace("  ROOT", body + "  ROOT"))
    (folder / "many").mkdir()
    for i in range(200):
        (folder / f"many/{i}.hlo").write_text(NEGATE)
    process = subprocess.Popen(
        [sys.executable, "-m", "hlokit", *line.split()], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(120) == 141


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("print", "FILE is missing."), ("check", "FILES is missing."), ("explain", "LABELS is missing."),
        ("convert add.hlo", "OUTPUT is missing."), ("simulate add.hlo", "--topology is missing."),
        ("print add.hlo --form", "--form takes a value."), ("ops add x y", "Unexpected: x y."),
        ("reduce add.hlo --mismatch strict", "--mismatch takes 2 values."),
        ("print add.hlo --for x", "Did you mean --form?"), ("opt add.hlo --passes ,", "expected at least one name"),
        ("opt add.hlo --load add.hlo", "--load add.hlo: line 1: SyntaxError: invalid syntax"),
        ("opt add.hlo --load wrong.py", "--load wrong.py: line 2: ZeroDivisionError: division by zero"),
    ],
)  # fmt: skip
def test_messages_on_usage(capsys: pytest.CaptureFixture[str], folder: Path, line: str, message: str) -> None:
    (folder / "wrong.py").write_text("\n1 / 0\n")
    status, _, error = command(capsys, line)
    assert status == 2 and message in error and len(error.splitlines()) == 1


# -- standard input and output


@pytest.mark.parametrize(
    "line",
    [
        "print -", "check -", "opt -", "convert - -", "compile - --emit hlo", "cache why -", "run - --random 1",
        f"simulate - {_REST['simulate']}", "partition - --mesh a=2 --output -", "opt - --output -", "compile - --emit llvm --output -", "convert - - --to dot",
    ],
)  # fmt: skip
def test_standard_input(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(NEGATE.encode()), encoding="utf-8"))
    status, out, error = command(capsys, line)
    assert (status, error) == (0, "") and out.strip()
    assert not (folder / "-").exists()


def test_errors_name_the_standard_input(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(SYNTAX.encode()), encoding="utf-8"))
    for line in ("print -", "check -"):
        assert "error: standard input: line 4" in command(capsys, line)[2]


def test_arrays_from_standard_input_and_to_standard_output(
    folder: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO((folder / "one.npz").read_bytes()), encoding="utf-8"))
    with pytest.raises(SystemExit) as end:
        main(["run", "negate.hlo", "--input", "-", "--output", "-"])
    assert not end.value.code
    assert np.load(io.BytesIO(capfdbinary.readouterr().out))["out0"].tolist() == [-1, -1]


# -- convert


def test_convert_writes_what_the_name_says(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    expected = str(hk.load("negate.hlo"))
    for name in ("x.hlo", "x.txt", "x.hlo.txt", "x.pb", "x.hlo.pb", "x.mlir", "x"):
        assert command(capsys, f"convert negate.hlo {name}") == (0, "", "")
        found = hk.load(name)
        assert str(found) == expected or (name == "x.mlir" and found.entry.root.opcode == "negate")
    assert Path("x.hlo.pb").read_bytes()[0:1] == b"\x0a" and Path("x.hlo.pb").read_bytes().endswith(Path("x.pb").read_bytes())
    assert "digraph" in (command(capsys, "convert negate.hlo x.gv"), Path("x.gv").read_text(encoding="utf-8"))[1]


def test_convert_refuses_names_that_no_form_has(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    for name in ("x.svg", "x.json", "x.hlo.gz", "x.png"):
        _, _, error = command(capsys, f"convert negate.hlo {name}")
        assert f"{name}: no program format has the suffix .{name.rpartition('.')[2]}; the known suffixes" in error
        assert ".hlo.pb, .pb, .pbtxt, " in error and not Path(name).exists()
    assert command(capsys, "convert negate.hlo x.svg --to dot")[0] == 0 and "digraph" in Path("x.svg").read_text(encoding="utf-8")


# -- run


@pytest.mark.parametrize("path", [SNAPSHOT, UNOPTIMIZED], ids=["HloSnapshot", "HloUnoptimizedSnapshot"])
def test_run_takes_the_arguments_of_a_snapshot(capsys: pytest.CaptureFixture[str], folder: Path, path: Path) -> None:
    status, out, _ = command(capsys, f"run {path}")
    assert status == 0 and "19.-2.j" in out.replace(" ", "")
    status, _, error = command(capsys, f"run {path} --replicas 2")
    assert status == 2 and "the snapshot has arguments of 1 device, 2 run the program" in error
    status, out, _ = command(capsys, f"run {path} --random 1")
    assert status == 0 and "19.-2.j" not in out.replace(" ", "")


def test_trap_nan_names_the_instruction(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    status, _, error = command(capsys, "run nan.hlo --input minus.npz --trap-nan")
    assert status == 1 and "y: a NaN from operands without" in error and "log(" in error
    assert command(capsys, "run nan.hlo --input one.npz --trap-nan")[0] == 0
    assert command(capsys, "run nan.hlo --input minus.npz")[0] == 0


def test_after_prints_what_instructions_give(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    status, out, _ = command(capsys, "run nan.hlo --input one.npz --after %y,r")
    assert status == 0 and out.splitlines()[:4] == ["y = f32[2]", "[0. 0.]", "r = f32[2]", "[0. 0.]"]
    _, _, error = command(capsys, "run nan.hlo --input one.npz --after z")
    assert "--after: no instruction 'z'" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("add.hlo", "m takes 2 arguments: give --input FILE.npz or --random SEED"),
        ("add.hlo --input long.npz", "argument 0 (x): found f32[3], expected f32[2]"),
        ("add.hlo --input one.npz", "one.npz: it has x; the parameters are x, y"),
        ("sum.hlo --input one.npz", "one.npz: it has x; the parameters are a, b"),
        ("add.hlo --input add.hlo", "add.hlo: not an .npz of arrays"),
        ("add.hlo --input missing.npz", "missing.npz: no such file or directory"),
    ],
)
def test_arguments_that_do_not_fit(capsys: pytest.CaptureFixture[str], folder: Path, arguments: str, message: str) -> None:
    status, _, error = command(capsys, f"run {arguments}")
    assert status == 2 and message in error


# -- opt, cache


def test_opt_writes_its_result(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "twice.hlo").write_text(NEGATE.replace("negate(x)", "negate(y)").replace("  ROOT", "  y = f32[2] negate(x)\n  ROOT"))
    assert command(capsys, "opt twice.hlo --output out.hlo") == (0, "", "")
    assert hk.load("out.hlo").entry.root.opcode == "parameter"


def test_passes_have_one_spelling(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert not [name for name in hk.PASSES if "_" in name]
    for name in ("constant-folding", "constant_folding"):
        assert command(capsys, f"opt negate.hlo --passes {name}")[0] == 0
    assert "constant-folding" in command(capsys, "opt --list-passes")[1]


def test_cache_clear_says_what_it_removes(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert Cache().store(Key.of("program", text="a" * 64), b"code") == ""
    (entry,) = Cache().entries()
    what = f"1 entries, {entry.size} bytes, from {Cache().folder}\n"
    assert command(capsys, "cache clear --dry-run") == (0, f"would remove {what}", "")
    assert command(capsys, "cache clear") == (0, f"removing {what}1 entries removed\n", "")
    assert Cache().entries() == []


# -- check


BROKEN = """HloModule m

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] ad(a, b)
}

ENTRY e {
  x = f32[2] parameter(0)
  y = f32[3] negate(x)
  z = f32[3] add(y, y)
  w = f32[2] add(y, x)
  v = f32[] reduce(x, q), dimensions={0}, to_apply=sum
  u = f32[2 negate(x)
  t = f32[2] nope(x)
  s = f32[2] negate(t), bogus=3
  x = f32[2] negate(u)
  k = f32[2] abs(u)
  ROOT r = f32[2] add(w, k)
}
"""


def test_findings_of_a_text_are_all_told() -> None:
    """What uses a wrong instruction is checked against the shape that is written; what cannot be known is not told."""
    found = [(error.line, error.label, error.is_syntax) for error in findings(BROKEN)]
    assert found == [
        (6, "HINST-6", False), (11, "HINST-2", False), (13, "BUILDER-15", False), (14, "HCOMP-7", False),
        (15, "HSHAPE-1", True), (16, "HINST-6", False), (17, "HINST-6", False), (18, "HCOMP-6", False),
    ]  # fmt: skip
    assert findings(NEGATE) == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("HloModule m, bogus=1\nENTRY e {\n  x = f32[2] parameter(0), no=1\n}", [1, 3]),
        ("HloModule m\na {\n  x = f32[] parameter(1)\n}\nENTRY e {\n  x = f32[2] parameter(0), no=1\n}", [2, 6]),
        ("HloModule m\na b {\n  x = f32[] parameter(0)\n}\nENTRY e {\n  x = f32[2] parameter(0), no=1\n}", [2, 6]),
        ("HloModule m\nENTRY e {\n  x = f32[2] parameter(0)\n  $\n  y = f32[3] negate(x)\n", [4, 5]),
        ("HloModule m\n", [2]),
        ("ENTRY e { x = f32[2] nope() }", [1]),
        ("f32[2] add(f32[3] x, f32[2] y)", [1]),
        ("HloModule m\nENTRY e {\n" + "  x = nope()\n" * 200 + "}", [*range(3, 103)]),
    ],
)
def test_findings_behind_others(text: str, lines: list[int]) -> None:
    assert [error.line for error in findings(text)] == lines


def test_options_may_stand_between_files(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    status, out, error = command(capsys, "check negate.hlo --replicas 2 add.hlo")
    assert (status, error) == (0, "") and "negate.hlo: m: ok" in out and "add.hlo: m: ok" in out


def test_files_beside_programs_are_named(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """As in an XLA dump; one that was cut off is no such file, and alone each is an error."""
    (folder / "module_0.f").mkdir()
    (folder / "module_0.ll").write_text("; ModuleID = 'm'\n")
    status, out, error = command(capsys, "check module_0.f module_0.ll negate.hlo")
    assert (status, error) == (0, "")
    assert out.endswith("\n1 other file (--all lists them): LLVM IR (1)\n") and "module_0" not in out
    assert command(capsys, "check module_0.ll negate.hlo --all")[1].endswith("\nmodule_0.ll: LLVM IR\n")
    status, out, _ = command(capsys, "check module_0.ll negate.hlo --json")
    assert [(v["status"], v.get("kind")) for v in json.loads(out)] == [(0, "LLVM IR"), (0, None)]
    (folder / "empty.hlo").write_text("")
    assert command(capsys, "check negate.hlo empty.hlo")[0] == 2
    assert command(capsys, "check module_0.ll")[0] == 2
    status, _, error = command(capsys, "check module_0.f module_0.ll")
    assert (status, error) == (2, "error: none of these files contains a program\n")


def test_check_takes_a_folder(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """All files below it, in the order of their names."""
    (folder / "dump/inner").mkdir(parents=True)
    status, out, error = command(capsys, "check dump")
    assert (status, out, error) == (2, "", "error: dump: no files there\n")
    (folder / "dump/b.ll").write_text("; ModuleID = 'm'\n")
    (folder / "dump/a.hlo").write_text((folder / "negate.hlo").read_text())
    (folder / "dump/inner/c.hlo").write_text(BROKEN)
    status, out, error = command(capsys, "check dump")
    assert status == 2 and error.count("error: dump/inner/c.hlo: line ") == 8
    assert [line.partition(": ")[0] for line in out.splitlines() if "dump" in line] == ["dump/a.hlo"]
    assert out.splitlines()[-1] == "1 other file (--all lists them): LLVM IR (1)"
    status, out, _ = command(capsys, "check dump --json")
    assert [v["file"] for v in json.loads(out)] == ["dump/a.hlo", "dump/b.ll", "dump/inner/c.hlo"]


def test_check_tells_all_findings_of_all_files(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "broken.hlo").write_text(BROKEN)
    status, out, error = command(capsys, f"check broken.hlo wrong.hlo negate.hlo missing {DATA / 'snapshot.pb'}")
    assert status == 2 and error.count("error: broken.hlo: line ") == 8 and error.count("error: wrong.hlo: line 4") == 1
    assert "error: missing: no such file" in error
    assert "negate.hlo: m: ok, 1 computation, 2 instructions" in out and "snapshot.pb: jit__lambda: ok" in out
