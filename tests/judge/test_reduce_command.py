"""`hlokit reduce`: checks, files, statuses, going on."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hlokit as hk
from hlokit.tools import reduce
from hlokit.tools.main import main
from tests.judge.test_compare import TEXT, tool
from tests.judge.test_reduce import DEEP


def run(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["reduce", *map(str, words)])
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "deep.hlo"
    path.write_text(DEEP)
    return path


def test_a_command_says_what_is_bad(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(program, "--check", 'grep -q " log("') == 0
    out = capsys.readouterr().out
    assert "2 instructions after" in out
    found = hk.load(program.with_name("deep.reduced.hlo"))
    assert found.entry.root.opcode == "log"
    assert program.read_text(encoding="utf-8") == DEEP
    done = subprocess.run([sys.executable, program.with_name("deep.reduced.py")], capture_output=True, text=True)
    assert done.stdout == "exit status 0 (0: the program shows the fault)\n", done.stderr


def test_a_fault_of_a_command_as_an_engine_and_arguments_as_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.hlo").write_text(TEXT)
    wrong = tool(tmp_path, "exponential", "np.where(a[0] > 80, np.float32(0), true(self, *a, **k))")
    words = "--mismatch", "reference", wrong
    assert run(tmp_path / "m.hlo", *words) == 2  # exp of random numbers is right
    assert run(tmp_path / "m.hlo", *words, "--input", "f32[40,8]=85", "--time-limit", 60) == 0
    module = hk.load(tmp_path / "m.reduced.hlo")
    assert [i.opcode for i in module.instructions() if i.opcode != "parameter"] == ["exponential"]
    done = subprocess.run([sys.executable, tmp_path / "m.reduced.py"], capture_output=True, text=True)
    assert f"\n{wrong}: wrong: " in done.stdout, done.stderr


def test_a_nan_is_kept_with_its_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    b = hk.Builder()
    x, y = b.parameter(0, hk.f32[6], "x"), b.parameter(1, hk.f32[6], "y")
    path, given = tmp_path / "m.hlo", tmp_path / "given.npz"
    path.write_text(str(b.build(hk.tanh(hk.log(x - y) * 2.0) + y)))
    np.savez(given, x=np.float32([3, 4, 1, 5, 6, 7]), y=np.float32([1, 1, 2, 1, 1, 1]))
    assert run(path, "--nan", "reference", "--input", given, "--output", tmp_path / "small.hlo") == 0
    module = hk.load(tmp_path / "small.hlo")
    arrays = np.load(tmp_path / "small.npz")
    arguments = [arrays[f"in{i}"] for i in range(len(module.entry.parameters))]
    assert np.isnan(hk.evaluate(module, *arguments)).any()
    assert len(module.instructions()) <= 3
    done = subprocess.run([sys.executable, tmp_path / "small.py"], capture_output=True, text=True)
    assert "reference: equal" in done.stdout, done.stderr


def test_it_goes_on_from_its_log(program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "steps"
    command = 'grep -q " while("'
    assert run(program, "--check", command, "--log", log, "--time-limit", 0.2) == 0
    first = len(list(log.glob("*.hlo")))
    assert first > 0
    capsys.readouterr()
    assert run(program, "--check", command, "--log", log) == 0
    assert len(list(log.glob("*.hlo"))) >= first
    assert any(i.opcode == "while" for i in hk.load(program.with_name("deep.reduced.hlo")).instructions())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "expected one of --check"),
        (("--check", "true", "--nan", "strict"), "expected one of --check"),
        (("--check", "no-such-command"), "there is no command 'no-such-command'"),
        (("--check", "false"), "does not show the fault, so it cannot be reduced"),
        (("--crash", "gpu"), "there is no engine 'gpu'"),
        (("--check", "true", "--output", "deep.hlo"), "is not overwritten"),
        (("--check", "true", "--timeout", "0"), "--timeout must be greater than 0"),
    ],
)
def test_bad_input(
    words: tuple[str, ...],
    message: str,
    program: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(program.parent)
    assert run(program.name, *words) == 2
    assert message in capsys.readouterr().err


def test_checks_that_are_true_of_nothing_or_of_everything(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(program, "--check", "false") == 2
    assert capsys.readouterr().err == f"error: reduce --check false: {program} does not show the fault, so it cannot be reduced\n"
    assert run(program, "--check", "true") == 2
    assert "reduce --check true: every program shows this" in capsys.readouterr().err
    assert run(program, "--mismatch", "reference", "passes") == 2
    assert "reduce --mismatch reference passes: " in capsys.readouterr().err
    assert not program.with_name("deep.reduced.hlo").exists()


def test_an_interrupted_reduction_says_how_to_continue(
    program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(reduce, "reduce_module", interrupted)
    words = program, "--check", 'grep -q " log("'
    assert run(*words, "--log", tmp_path / "log") == 130
    assert capsys.readouterr().err == f"interrupted; the same command continues from the last step in {tmp_path / 'log'}\n"
    assert run(*words) == 130
    assert capsys.readouterr().err == "error: interrupted\n"
