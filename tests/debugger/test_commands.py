"""The command `hlokit debug`: lines, files of sessions, the screen."""

from __future__ import annotations

import asyncio
import os
import re
import select
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import hlokit as hk
from hlokit.debugger.commands import Session
from hlokit.debugger.saved import is_session, restored, save
from tests.debugger.test_travel import LOOP, same

SCRIPT = """\
break nan
run
where
from l 1
back
print y[0]
set y = [1, 1, 1, 1]
watch z
step
step
run-back iteration:w:0
to x
list 1
"""

SAID = """\
e: %zero = s32[] constant(0)
breakpoint 1: nan (0 hits)
breakpoint 1: 1 NaN in %l, none in its operands
body (iteration 1): %z = f32[4]{0} add(%l, %x)
#0 body, body of %w (iteration 1) at %z
#1 e at %w
%l = log  float32[4] min 0.644726 max 1.55873 nan 1
  %y = subtract  float32[4] min -0.193147 max 4.75276
body (iteration 1): %l = f32[4]{0} log(%y)
y[0]: float32[] = -0.19314718
body (iteration 1): %l = f32[4]{0} log(%y)
body (iteration 1): %z = f32[4]{0} add(%l, %x)
%z: not here
body (iteration 1): %r = (s32[], f32[4]{0}) tuple(%j, %z)
%z: float32[4]  min 0.306853, max 5.25276, mean 2.97034, std 1.83831
[0.30685282 2.4054651  3.9162908  5.252763  ]
iteration 0 of %w
body (iteration 0): %i = s32[] get-tuple-element(%s), index=0
%z: not here
%y = subtract
%z = add
   %s = (s32[], f32[4]{0}) parameter(0)
=> %i = s32[] get-tuple-element(%s), index=0
   %one = s32[] constant(1)
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    program, data = tmp_path / "loop.hlo", tmp_path / "loop.npz"
    program.write_text(LOOP, encoding="utf-8")
    np.savez(data, a=np.array([1, 2, 3, 4], np.float32))
    return program, data


def test_script(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Each command's answer."""
    from hlokit.tools.debug import debug

    program, data = files
    lines = [*SCRIPT.splitlines(), "quit"]
    assert debug(program, input=(str(data),), command=lines, plain=True) == 0
    assert capsys.readouterr().out == SAID


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("bogus", "'bogus' is not a command: help lists them"),
        ("back-uot", "'back-uot' is not a command: did you mean back-out"),
        ("step 3", "step takes nothing: found '3'"),
        ("print nothing", "m has no instruction 'nothing'"),
        ("print a[9]", "is not a part of a"),
        ("print a[(]", "is not a part of a"),
        ("print a[__import__('os')]", "is not a part of a"),
        ("set a", "expected set NAME = VALUE"),
        ("set a = x", "x: is not a number or lists of numbers"),
        ("go x", "go: 'x' is not a number"),
        ("save", "save takes the name of a file"),
        ("unwatch a", "%a is not watched"),
        ("break opcode:x", "'x' is not an opcode"),
    ],
)
def test_bad_lines(line: str, message: str) -> None:
    session = Session(hk.debug(hk.parse(LOOP), [1, 2, 3, 4]))
    with pytest.raises(hk.ArgumentError, match=re.escape(message)):
        session.execute(line)


def test_names_do_nothing_to_the_terminal() -> None:
    """Control characters in a program's names are shown as escapes."""
    text = 'ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] negate(x), metadata={op_name="a\x1b[31m\u202eb"} }'
    session = Session(hk.debug(hk.parse(f"HloModule m\n{text}"), [1, 2]))
    said = session.execute("source y")
    assert said == r"scope a\x1b[31m\u202eb"


def test_saved_session(tmp_path: Path) -> None:
    """A session that is saved and read again is at the same place, with the same changes and breakpoints."""
    d = hk.debug(hk.parse(LOOP), [1, 2, 3, 4])
    d.run("l")
    d.change("y", [1, 1, 1, 1])
    d.break_at("iteration:w:3")
    d.run("z")
    path = tmp_path / "session"
    save(d, path, ["x"])
    assert is_session(path.read_bytes())
    again, watched = restored(path.read_bytes())
    assert (again.time, again.next and again.next.name, watched) == (d.time, "z", ["x"])
    assert same(again.value("l"), np.zeros(4, np.float32))
    assert str(again.breakpoints[0]) == "1: iteration:w:3 (0 hits)"
    assert again.run().text == d.run().text
    assert same(again.value("s"), d.value("s"))


def test_saved_sessions_that_are_damaged(tmp_path: Path) -> None:
    path = tmp_path / "session"
    save(hk.debug(hk.parse(LOOP), [1, 2, 3, 4]), path, [])
    content = path.read_bytes()
    for cut in range(0, len(content), 97):
        with pytest.raises(hk.HlokitError):
            restored(content[:cut])


def test_screen() -> None:
    """Keys and lines do what they say; the panes show the place and the operands' values."""
    pytest.importorskip("textual")
    from textual.widgets import Input, Static

    from hlokit.debugger.terminal import Screen

    async def use() -> None:
        screen = Screen(Session(hk.debug(hk.parse(LOOP), [1, 2, 3, 4])), ["break nan"])
        async with screen.run_test() as pilot:
            await pilot.press("f5")
            assert screen.sub_title == "body (iteration 1): %z = f32[4]{0} add(%l, %x)"
            assert "=> %z = f32[4]{0} add(%l, %x)" in str(screen.query_one("#program", Static).render())
            assert "nan 1" in str(screen.query_one("#values", Static).render())
            await pilot.press("f9")
            assert screen.sub_title.endswith("log(%y)")
            screen.query_one(Input).value = "bogus"
            await pilot.press("enter")
            assert screen.query_one(Input).value == ""
            screen.query_one(Input).value = "quit"
            await pilot.press("enter")
        assert screen.return_code == 0

    asyncio.run(use())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a pseudo-terminal of Linux")
def test_terminal(files: tuple[Path, Path]) -> None:
    """The whole command in a pseudo-terminal: it draws the program, takes lines, and leaves the terminal as it was."""
    pytest.importorskip("textual")
    import pty

    program, data = files
    words = [sys.executable, "-m", "hlokit", "debug", str(program), "--input", str(data)]
    child, terminal = pty.fork()
    if child == 0:
        os.environ |= {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
        os.execv(words[0], words)
    said = b""

    def until(wanted: bytes) -> None:
        nonlocal said
        end = time.monotonic() + 60
        while wanted not in re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", said):
            assert time.monotonic() < end, said[-2000:]
            if select.select([terminal], [], [], 0.2)[0]:
                try:
                    said += os.read(terminal, 1 << 16)
                except OSError:  # the child has closed its end
                    break

    until(b"=> %zero = s32[] constant(0)")
    os.write(terminal, b"run nan\r")
    until(b"1 NaN in %l, none in its operands")
    os.write(terminal, b"quit\r")
    until(b"\0never")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert said.rstrip().endswith(b"\x1b[?1049l") or b"\x1b[?1049l" in said  # out of the second screen
