"""Dumps and the flags for them; progress on a terminal; the commands that show what is made."""

import io
import logging
import re
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import hlokit as hk
from hlokit.errors import HlokitError
from hlokit.proto.module import module_from_proto
from hlokit.runtime import dump, progress
from hlokit.tools.main import main

TEXT = """HloModule jit_f
ENTRY e {
  x = f32[8,8] parameter(0)
  t = f32[8,8] transpose(x), dimensions={1,0}
  u = f32[8,8] transpose(t), dimensions={1,0}
  ROOT r = f32[8,8] exponential(u)
}
"""


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    monkeypatch.delenv("HLOKIT_DUMP_TO", raising=False)
    monkeypatch.setattr(dump, "_warned", set())


def dumped(folder: Path) -> dict[str, str]:
    """What follows module_NNNN.jit_f. -> content; of one program."""
    files = {path.name: path.read_bytes().decode("latin-1") for path in folder.iterdir()}
    assert len({name.split(".")[0] for name in files}) == 1
    return {name.split(".", 2)[2]: text for name, text in files.items()}


def test_all_stages_under_xlas_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOKIT_DUMP_TO", str(tmp_path / "dump"))
    executable = hk.compile(hk.parse(TEXT))
    files = dumped(tmp_path / "dump")
    assert set(files) == {
        "before_optimizations.txt", "cpu_after_optimizations.txt", "cpu_after_optimizations-memory-usage-report.txt",
        "loops.txt", "ir-no-opt.ll", "ir-with-opt.ll", "s", "o",
    }  # fmt: skip
    assert "transpose" in files["before_optimizations.txt"] and "transpose" not in files["cpu_after_optimizations.txt"]
    assert files["ir-no-opt.ll"] == executable.as_text("llvm") and "hlokit_entry:" in files["s"]
    assert "x" in files["cpu_after_optimizations-memory-usage-report.txt"]


@pytest.mark.parametrize(
    ("flags", "forms"),
    [
        ("--xla_dump_hlo_as_proto", {"hlo.pb"}),
        ("--xla_dump_hlo_as_proto=true --xla_dump_hlo_as_text", {"hlo.pb", "txt"}),
        ("--xla_dump_hlo_as_proto=false", {"txt"}),
    ],
)
def test_forms_of_modules(flags: str, forms: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", f"--xla_dump_to={tmp_path} {flags}")
    hk.compile(hk.parse(TEXT))
    for stage in ("before_optimizations", "cpu_after_optimizations"):
        files = {path.name.split(f".{stage}.")[1]: path for path in tmp_path.glob(f"*.{stage}.*")}
        assert files.keys() == forms
        if "hlo.pb" in forms:
            assert str(module_from_proto(files["hlo.pb"].read_bytes())).startswith("HloModule jit_f")


def test_programs_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", f"--xla_dump_to={tmp_path}")
    for _ in range(2):
        hk.compile(hk.parse(TEXT))
    first, second = sorted(tmp_path.glob("*.before_optimizations.txt"))
    number = int(first.name[len("module_") :].split(".")[0])
    assert second.name == f"module_{number + 1:04}.jit_f.before_optimizations.txt"


def test_after_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", f"--xla_dump_to={tmp_path} --xla_dump_hlo_pass_re=alg.*")
    hk.compile(hk.parse(TEXT))
    (name,) = (name for name in dumped(tmp_path) if "HLO_passes" in name)
    assert name == "0000.HLO_passes.after_algsimp.before_constant-folding.txt"
    assert "transpose" not in dumped(tmp_path)[name]


def test_passes_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = hk.compile(hk.parse(TEXT))
    monkeypatch.setenv("XLA_FLAGS", "--xla_disable_hlo_passes=algsimp,algsimp-fast")
    other = hk.compile(hk.parse(TEXT))
    assert "transpose" not in plain.as_text("hlo") and "transpose" in other.as_text("hlo")
    x = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    np.testing.assert_array_equal(plain(x), other(x))


def test_flags_in_a_file_and_unknown_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "flags").write_text("--xla_dump_to=/nowhere\n--xla_cpu_enable_fast_math=true\n")
    monkeypatch.setenv("XLA_FLAGS", str(tmp_path / "flags"))
    with caplog.at_level(logging.WARNING, "hlokit"):
        assert dump.settings() == dump.settings() == dump.Settings("/nowhere")
    assert [r.getMessage() for r in caplog.records] == ["XLA_FLAGS: --xla_cpu_enable_fast_math is ignored"]
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_hlo_pass_re=(")
    with pytest.raises(HlokitError, match="xla_dump_hlo_pass_re"):
        dump.settings()
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to='/a")
    with pytest.raises(HlokitError, match=r"XLA_FLAGS: .*No closing quotation"):
        dump.settings()


def test_a_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HLOKIT_DUMP_TO", str(tmp_path / "file"))
    with caplog.at_level(logging.WARNING, "hlokit"):
        hk.compile(hk.parse(TEXT))
    assert len(caplog.records) == 1 and "cannot dump" in caplog.text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "AFTER", 0.01)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.progress("jit[f]") as say:
        end = time.monotonic() + 10
        while "passes" not in sys.stderr.getvalue() and time.monotonic() < end:
            time.sleep(0.01)
        say("machine code", 1000.0)
        while "left" not in sys.stderr.getvalue() and time.monotonic() < end:
            pass  # processor time passes
    assert "compiling jit[f]: passes" in sys.stderr.getvalue()
    assert re.search(r"compiling jit\[f\]: machine code, about \d+ s left", sys.stderr.getvalue())


def test_no_progress_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "AFTER", 0.0)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress.progress("f") as say:
        say("passes")
        time.sleep(0.02)
    assert sys.stderr.getvalue() == ""


# -- commands


def command(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    with pytest.raises(SystemExit) as exit:
        main([str(a) for a in arguments])
    captured = capsys.readouterr()
    assert not exit.value.code, captured.err
    return captured.out


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "f.hlo"
    path.write_text(TEXT)
    return path


def test_compile_says_what_came_of_it(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    text = command(capsys, "compile", file)
    assert "jit_f: " in text and "steps: 1 kernel" in text and "bytes: " in text


def test_compile_for_several_devices(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "two.hlo"
    path.write_text("HloModule two, replica_count=2\nENTRY e {\n  ROOT r = u32[] replica-id()\n}")
    text = command(capsys, "compile", path)
    assert "two: " in text and "steps: " in text and "bytes: " in text
    with pytest.raises(SystemExit):
        main(["run", str(path), "--profile", str(tmp_path / "trace.json")])
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.parametrize(
    ("stage", "part"),
    [("hlo", "exponential("), ("loops", "= exp("), ("llvm", "define i32 @hlokit_entry"), ("asm", ".text")],
)
def test_compile_prints_a_stage(capsys: pytest.CaptureFixture[str], file: Path, stage: str, part: str) -> None:
    assert part in command(capsys, "compile", file, "--emit", stage, "--target", "aarch64")


def test_compile_writes_an_object(capsys: pytest.CaptureFixture[str], file: Path, tmp_path: Path) -> None:
    out = command(capsys, "compile", file, "--emit", "obj", "--output", tmp_path / "f.o", "--target", "x86-64-avx2")
    assert out.split() == [str(tmp_path / "f.o"), str(tmp_path / "f.h")]
    assert (tmp_path / "f.o").read_bytes()[:4] in (b"\x7fELF", b"\xcf\xfa\xed\xfe")


def test_run_as_machine_code(capsys: pytest.CaptureFixture[str], file: Path, tmp_path: Path) -> None:
    reference = command(capsys, "run", file, "--random", 1, "--output", tmp_path / "a.npz")
    flags = ("--xla_dump_to", tmp_path / "d", "--shadow", tmp_path / "s", "--profile", tmp_path / "t.json")
    text = command(capsys, "run", file, "--random", 1, "--output", tmp_path / "b.npz", *flags)
    assert "out0 = f32[8,8]" in reference and "GB/s" in text and (tmp_path / "t.json").exists()
    assert any(path.name.endswith(".jit_f.s") for path in (tmp_path / "d").iterdir())
    with np.load(tmp_path / "a.npz") as a, np.load(tmp_path / "b.npz") as b:
        np.testing.assert_allclose(a["out0"], b["out0"], rtol=1e-6)
