"""`hlokit diff`: files, folders of dumps, pages, statuses."""

import json
from pathlib import Path

import pytest

from hlokit.tools.main import main

A = "HloModule m\nENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] negate(x) }\n"
B = A.replace("negate", "sine")


def run(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["diff", *map(str, words)])
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    paths = tmp_path / "a.hlo", tmp_path / "b.hlo"
    for path, text in zip(paths, (A, B), strict=True):
        path.write_text(text)
    return paths


def dump(folder: Path, *, last: str) -> Path:
    folder.mkdir()
    stages = {
        "before_optimizations": A,
        "0000.simplification.after_pipeline-start.before_algsimp": A,
        "0001.simplification.after_algsimp.before_dce": B,
        "cpu_after_optimizations": last,
        "cpu_after_optimizations-buffer-assignment": "no module",
    }
    for name, text in stages.items():
        (folder / f"module_0003.jit_f.{name}.txt").write_text(text)
    return folder


def test_statuses(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    a, b = files
    assert run(a, a) == 0
    assert capsys.readouterr().out == "HloModule m -> m: 2 same\n"
    assert run(a, b) == 1
    assert "opcode: negate -> sine" in capsys.readouterr().out
    assert run(a) == 2
    assert "B is missing" in capsys.readouterr().err
    assert run(a, b.parent) == 2
    assert "is a folder and the other is not" in capsys.readouterr().err
    assert run(a, b, "--ignore", "taste") == 2
    assert "cannot ignore taste" in capsys.readouterr().err
    assert run(a, b.parent / "missing.hlo") == 2
    assert "no such file" in capsys.readouterr().err


def test_json_and_page(files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*files, "--json", "--html", tmp_path / "d.html") == 1
    value = json.loads(capsys.readouterr().out)
    assert value["counts"]["changed"] == 1
    assert value["first"] == str(files[0])
    assert "negate" in (tmp_path / "d.html").read_text()


def test_one_folder_tells_what_each_pass_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(dump(tmp_path / "run", last=B)) == 1
    assert capsys.readouterr().out.splitlines() == [
        "jit_f 0001 simplification.after_algsimp.before_dce: 1 same, 1 changed",
        "3 comparisons, 1 with differences",
    ]


def test_two_folders_tell_how_two_runs_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = dump(tmp_path / "run1", last=B), dump(tmp_path / "run2", last=A)
    assert run(first, first) == 0
    assert run(first, second, "--details") == 1
    out = capsys.readouterr().out
    assert "jit_f cpu_after_optimizations: 1 same, 1 changed" in out
    assert "opcode: sine -> negate" in out


def test_a_folder_without_dumps_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path) == 2
    assert "no files of a dump" in capsys.readouterr().err


def test_modules_of_the_same_name_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = dump(tmp_path / "dump", last=A)
    for name, text in (("before_optimizations", A), ("cpu_after_optimizations", B)):
        (folder / f"module_0005.jit_f.{name}.txt").write_text(text)
        (folder / f"module_0006.jit_g.{name}.txt").write_text(text)
    assert run(folder) == 1
    titles = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert titles[0] == "module_0003 jit_f 0001 simplification.after_algsimp.before_dce"
    assert titles[-3:-1] == ["module_0005 jit_f cpu_after_optimizations", "jit_g cpu_after_optimizations"]
