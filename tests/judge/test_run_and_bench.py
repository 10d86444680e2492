"""`hlokit run --expect`, values on the command line, and `hlokit bench`."""

import json
from pathlib import Path

import pytest

from hlokit.tools.main import main

TEXT = """HloModule m
ENTRY e {
  x = f32[4] parameter(0)
  y = s32[3] parameter(1)
  z = f32[4] add(x, x)
  ROOT t = (f32[4], s32[3]) tuple(z, y)
}"""


def run(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, words)))
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "m.hlo"
    path.write_text(TEXT)
    return path


def test_values_and_expected_results(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    right = file.with_name("right.npz")
    y = "s32[3]={1, 2, 3}"
    assert run("run", file, "--input", "4xf32=1.5", "--input", y, "--output", right) == 0
    assert "[3. 3. 3. 3.]" in capsys.readouterr().out
    assert run("run", file, "--input", "f32[4]={1.5, 1.5, 1.5, 1.5}", "--input", y, "--expect", right) == 0
    assert run("run", file, "--input", "f32[4]=1.5001", "--input", y, "--expect", right) == 1
    assert "out0: found 3.00" in capsys.readouterr().err
    assert run("run", file, "--input", "f32[4]=1.5001", "--input", y, "--expect", right, "--rtol", 1e-3) == 0
    assert run("run", file, "--input", "f32[4]=1.5", "--input", "3xs32=9", "--expect", right, "--atol", 1) == 1
    assert "out1: found 9 at [0], expected 1; 3 of 3 differ" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--input", "4xf32=1"], "1 value, m takes 2"),
        (["--input", "4xf32=1", "--input", "right.npz"], "one file, or one value for each parameter"),
        (["--input", "4xf33=1", "--input", "s32[3]=1"], "f33"),
        (["--input", "f32[4]=abc", "--input", "s32[3]=1"], "expected a number, found 'abc'"),
        (["--input", "f32[5]=1", "--input", "s32[3]=1"], "expected f32[4]"),
        (["--random", "0", "--expect", "missing.npz"], "missing.npz"),
        (["--random", "0", "--expect", "missing.npz", "--rtol", "-1"], "--rtol"),
    ],
)
def test_bad_values(file: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("run", file, *words) == 2
    assert message in capsys.readouterr().err


def test_bench(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("bench", file, "--repeat", 3, "--jaxlib", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert list(told["seconds"]) == ["jaxlib, before", "hlokit", "jaxlib, after"]
    assert all(0 < row["p10"] <= row["median"] <= row["p90"] for row in told["seconds"].values())
    assert run("bench", file, "--repeat", 2) == 0
    assert "median" in capsys.readouterr().out
    assert run("bench", file, "--repeat", 0) == 2
