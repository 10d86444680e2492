"""What a user's shell and scripts see of the command: examples, completion, JSON, versions, progress, colours."""

from __future__ import annotations

import io
import json
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import hlokit as hk
from hlokit.judge.fuzz.campaign import Campaign, Finding
from hlokit.tools.examples import EXAMPLES
from hlokit.tools.main import app
from hlokit.tools.progress import progress
from tests.test_command import command, folder  # noqa: F401  # pyright: ignore[reportUnusedImport]  # a fixture

_COMMANDS = sorted(
    [name for name in app if not name.startswith("-") and name != "cache"]
    + [f"cache {name}" for name in app["cache"] if not name.startswith("-")]
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


# -- help


def test_every_command_has_examples() -> None:
    assert sorted(EXAMPLES) == _COMMANDS


@pytest.mark.parametrize("name", _COMMANDS)
def test_help_ends_with_examples(capsys: pytest.CaptureFixture[str], name: str) -> None:
    status, out, _ = command(capsys, f"{name} --help")
    shown = " ".join(out.partition("Examples:")[2].split())
    assert status == 0 and shown == " ".join(" ".join(EXAMPLES[name]).split())


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines])
def test_examples_are_command_lines(line: str) -> None:
    words = shlex.split(line.partition(">")[0] if "> ~" in line else line)
    app.parse_args(words[words.index("hlokit") + 1 :], exit_on_error=False, print_error=False)


# -- completion

_COMPLETIONS = {
    "hlokit comp": {"compare", "compile", "completion"},
    "hlokit compile m.hlo --emit ll": {"llvm", "llvm-opt"},
    "hlokit simulate m.hlo --top": {"--topology"},
    "hlokit cache w": {"why"},
    "hlokit check neg": {"negate.hlo"},
}


def script(capsys: pytest.CaptureFixture[str], path: Path, shell: str) -> Path:
    status, out, _ = command(capsys, f"completion {shell}")
    assert status == 0
    path.write_text(out, encoding="utf-8")
    return path


def output(words: list[str], **options: Any) -> list[str]:
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, **options)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.skipif(shutil.which("bash") is None, reason="without bash")
@pytest.mark.parametrize("line", _COMPLETIONS)
def test_completion_in_bash(capsys: pytest.CaptureFixture[str], folder: Path, line: str) -> None:  # noqa: F811
    path = script(capsys, folder / "completion.bash", "bash")
    words = " ".join(map(shlex.quote, line.split()))
    text = (
        f"source {path}; [[ $(complete -p hlokit) == *_hlokit* ]] || exit 3; COMP_WORDS=({words}); "
        'COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _hlokit; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    assert {word.strip() for word in output(["bash", "--norc", "-c", text])} == _COMPLETIONS[line]


@pytest.mark.skipif(shutil.which("fish") is None, reason="without fish")
@pytest.mark.parametrize("line", _COMPLETIONS)
def test_completion_in_fish(capsys: pytest.CaptureFixture[str], folder: Path, line: str) -> None:  # noqa: F811
    path = script(capsys, folder / "completion.fish", "fish")
    found = output(["fish", "--no-config", "-c", f"source {path}; complete -C {shlex.quote(line)}"])
    assert {row.partition("\t")[0] for row in found} >= _COMPLETIONS[line]  # fish adds files everywhere


@pytest.mark.skipif(shutil.which("zsh") is None, reason="without zsh")
def test_completion_in_zsh(capsys: pytest.CaptureFixture[str], folder: Path) -> None:  # noqa: F811
    path = script(capsys, folder / "_hlokit", "zsh")
    assert path.read_text().startswith("#compdef hlokit")
    text = f"fpath=({folder} $fpath); autoload -U compinit; compinit -u -d {folder}/dump; print $_comps[hlokit]; zsh -n {path}"
    assert output(["zsh", "-f", "-c", text]) == ["_hlokit"]


# -- JSON

_JSON = {
    "check negate.hlo deadlock.hlo wrong.hlo missing": lambda v: [
        (f["status"], len(f["findings"]), "module" in f) for f in v
    ] == [(0, 0, True), (1, 1, True), (1, 1, False), (2, 1, False)] and v[2]["findings"][0]["line"] == 4,
    "cost negate.hlo": lambda v: v["flops"] == 2,
    "compile negate.hlo": lambda v: v["steps"] == {"kernel": 1} and v["peak_bytes"] > 0,
    "partition negate.hlo --mesh a=2 --in-shardings {devices=[2]<=[2]} --out-shardings {replicated} --explain": lambda v: [
        r["kind"] for r in v["reasons"]
    ] == ["all-gather"] and v["devices"] == 2,
    "simulate negate.hlo --topology ring:2 --bandwidth 1GB/s --latency 1us": lambda v: "seconds" in v,
    "diff add.hlo negate.hlo": lambda v: not v["equal"],
    "ops reduce": lambda v: v["opcode"] == "reduce" and "to_apply" in v["calls"],
    "ops": lambda v: len(v) > 100,
    "explain BCAST-3": lambda v: [r["label"] for r in v] == ["BCAST-3"],
    "cache show": lambda v: v["entries"] == [],
    "cache why negate.hlo": lambda v: v["questions"][0]["hit"] is False and v["questions"][0]["reason"],
    "bench negate.hlo --repeat 2": lambda v: v["seconds"]["hlokit"]["median"] > 0,
}  # fmt: skip


@pytest.mark.parametrize("line", _JSON)
def test_json(capsys: pytest.CaptureFixture[str], folder: Path, line: str) -> None:  # noqa: F811
    _, out, error = command(capsys, f"{line} --json")
    assert error == "" and _JSON[line](json.loads(out)), out


def test_json_of_engines(capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """Of compare and reduce on engines, and of fuzz on what a campaign gives."""
    status, out, _ = command(capsys, "compare negate.hlo --engines passes --json")
    assert status == 0 and "passes" in json.dumps(json.loads(out))
    (folder / "check.sh").write_text("#!/bin/sh\ngrep -q negate $1\n")
    (folder / "check.sh").chmod(0o755)
    status, out, error = command(capsys, "reduce negate.hlo --check ./check.sh --json")
    found = json.loads(out)
    assert status == 0 and found["complete"] and Path(found["program"]).exists() and "Traceback" not in error
    campaign = Campaign(findings={"c": Finding("c", 3, "text", folder=folder)}, next_seed=1)
    monkeypatch.setattr("hlokit.tools.fuzz.run_campaign", lambda *_, **__: campaign)  # pyright: ignore[reportUnknownLambdaType]
    status, out, _ = command(capsys, "fuzz --count 1 --json")
    assert status == 1 and json.loads(out)["findings"][0]["folder"] == str(folder)


# -- versions


def test_version_says_what_a_report_needs(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = command(capsys, "--version")
    lines = out.splitlines()
    assert status == 0 and lines[0] == f"hlokit {hk.__version__}" and lines[1].startswith("Python 3.")
    words = {line.split()[0] for line in lines}
    assert {"numpy", "llvmlite", "jax", "jaxlib", "processor"} <= words and any("(LLVM " in line for line in lines)


# -- progress and colours


def test_bars_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, is_shown in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr("sys.stderr", stream)
        monkeypatch.setenv("TERM", "xterm")
        with progress("programs", 4) as advance:
            advance(1, text="[red]x[/red]")
        shown = stream.getvalue()
        assert ("programs: [red]x[/red]" in shown and "25%" in shown and "left" in shown) == is_shown
        assert is_shown or shown == ""


@pytest.mark.parametrize("line", ["run negate.hlo --random 0", "reduce add.hlo --check ./has_module --time-limit 5", "compare add.hlo --engines passes"])
def test_long_work_has_a_bar(capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:  # noqa: F811
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    status, out, _ = command(capsys, line)
    shown = terminal.getvalue()
    assert status == 0 and "%" in shown and "\x1b" not in out
    status, plain, _ = command(capsys, line.replace("--time-limit 5", "--time-limit 5 --output other.hlo"))
    assert plain.replace("other", "add.reduced").splitlines()[0].split(" after ")[0] == out.splitlines()[0].split(" after ")[0]


def test_no_color(capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """NO_COLOR turns colours off in a terminal."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    found: list[bool] = []
    for value in ("", "1"):
        if value:
            monkeypatch.setenv("NO_COLOR", value)
        terminal = Terminal()
        monkeypatch.setattr("sys.stdout", terminal)
        command(capsys, "diff add.hlo negate.hlo")
        found.append(any(f"\x1b[{code}m" in terminal.getvalue() for code in (31, 32, 33)))
        assert "negate" in terminal.getvalue()
    assert found == [True, False]


# -- where results go


@pytest.mark.parametrize("line", ["opt m.hlo", "run m.hlo --random 0", "compile m.hlo --emit obj", "extract m.hlo --instruction y"])
def test_output_has_a_short_form(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.hlo").write_text("HloModule m\nENTRY e { x = f32[4] parameter(0)  ROOT y = f32[4] negate(x) }", encoding="utf-8")
    name = {"run": "out.npz", "compile": "out.o"}.get(line.split()[0], "out.hlo")
    status, _, err = command(capsys, f"{line} -o {name}")
    assert status == 0, err
    assert Path(name).stat().st_size > 0


def test_an_unknown_op_names_its_neighbours(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = command(capsys, "ops tanhh")
    assert status == 2 and "no op 'tanhh'; did you mean tan, tanh?" in err
