"""Engines: results, refusals, crashes, hangs, and limits, each an outcome."""

import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from jaxlib.version import __version_info__ as jaxlib_version

import hlokit as hk
from hlokit.files.arrays import made_up
from hlokit.judge.engines.engine import OWN, CommandEngine, Job, engine_of

ADD = hk.parse("""HloModule m
ENTRY e { x = f32[3] parameter(0) y = bf16[2] parameter(1) z = f32[3] add(x, x) w = bf16[2] negate(y)
  ROOT r = (f32[3], bf16[2]) tuple(z, w) }""")
X, Y = np.float32([1, 2, 3]), np.array([1, -2], ml_dtypes.bfloat16)
ENDLESS = hk.parse("""HloModule m
body { x = f32[] parameter(0) ROOT s = f32[] sine(x) }
cond { x = f32[] parameter(0) m = f32[] constant(9) ROOT t = pred[] compare(x, m), direction=LT }
ENTRY e { x = f32[] parameter(0) ROOT w = f32[] while(x), condition=cond, body=body }""")


@pytest.mark.parametrize("name", ["reference", "compiled", "jaxlib"])
def test_results_come_back(name: str) -> None:
    with engine_of(name) as engine:
        for _ in range(2):
            outcome = engine.run(ADD, [X, Y])
            assert str(outcome) == "ok"
            np.testing.assert_array_equal(outcome.leaves[0], X + X)
            np.testing.assert_array_equal(outcome.leaves[1], -Y)
            assert outcome.leaves[1].dtype == Y.dtype


def test_a_hang_is_ended_and_the_next_run_works() -> None:
    with engine_of("reference", seconds=1.0) as engine:
        assert engine.run(ENDLESS, [np.float32(1)]).status == "timeout"
        assert engine.run(ADD, [X, Y]).status == "ok"


def test_programs_that_are_given_at_once_have_an_outcome_each(tmp_path: Path) -> None:
    """A hang or a refusal is that of its program; those after it run in a new process."""
    other = hk.parse('HloModule m\nENTRY e { ROOT c = f32[2] custom-call(), custom_call_target="nobody" }')
    programs = [(ADD, [X, Y]), (ENDLESS, [np.float32(1)]), (other, []), (ADD, [Y, X]), (ADD, [X, Y])]
    jobs = [Job.written(module, given, tmp_path, number) for number, (module, given) in enumerate(programs)]
    with engine_of("reference", seconds=2.0) as engine:
        found = engine.run_all(jobs)
    assert [outcome.status for outcome in found] == ["ok", "timeout", found[2].status, "error", "ok"]
    assert "nobody" in found[2].message
    assert [outcome.leaves[0].tobytes() for outcome in (found[0], found[4])] == [(X + X).tobytes()] * 2


def test_a_crash_is_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    with engine_of("strict") as engine:
        assert engine.run(ADD, [X, Y]).status == "ok"
        child = engine.child  # type: ignore[attr-defined]
        child.kill()
        child.wait()
        assert engine.run(ADD, [X, Y]).status == "ok"
    with CommandEngine(f"{sys.executable} -c 'import os; os.abort()'") as engine:
        assert str(engine.run(ADD, [X, Y])) == "crash: ended by SIGABRT"


def test_refusals_are_outcomes() -> None:
    module = hk.parse('HloModule m\nENTRY e { ROOT c = f32[2] custom-call(), custom_call_target="nobody" }')
    with engine_of("reference") as engine:
        outcome = engine.run(module, [])
        assert outcome.status in ("unsupported", "error")
        assert "nobody" in outcome.message


def test_memory_is_limited() -> None:
    b = hk.Builder()
    x = hk.broadcast(b.parameter(0, hk.f32), [1 << 29])
    module = b.build(hk.sort(x))
    with engine_of("reference", memory=1 << 31) as engine:
        assert engine.run(module, [np.float32(1)]).status in ("error", "crash")


def test_a_command_of_the_users(tmp_path: Path) -> None:
    tool = tmp_path / "tool.py"
    tool.write_text(
        "import sys, numpy as np, hlokit as hk\n"
        "module, given = hk.load(sys.argv[1]), np.load(sys.argv[2])\n"
        "assert module.name == 'm' and len(given) == 2\n"
        "np.savez(sys.argv[3], out0=given['in0'] * 2, out1=given['in1'] ^ np.uint16(1 << 15))\n"
    )
    with CommandEngine(f"{sys.executable} {tool} {{hlo}} {{inputs}} {{outputs}}") as engine:
        outcome = engine.run(ADD, [X, Y])
        np.testing.assert_array_equal(outcome.leaves[0], X + X)
        np.testing.assert_array_equal(outcome.leaves[1], -Y)
    with CommandEngine(f"{sys.executable} -c pass") as engine:
        assert str(engine.run(ADD, [X, Y])) == "error: it wrote no result"
    with CommandEngine("false") as engine:
        assert str(engine.run(ADD, [X, Y])) == "error: exit status 1"


PRINTS = """
import os, sys, time
for number in range(100000):
    print(f"line {number}", file=sys.stderr)
print("the adder is broken", file=sys.stderr, flush=True)
ACTION
"""


@pytest.mark.parametrize(
    ("action", "status", "end"),
    [
        ("sys.exit(3)", "error", "exit status 3"),
        ("os.abort()", "crash", "ended by SIGABRT"),
        ("time.sleep(60)", "timeout", "no result within 4 s"),
        ("", "error", "it wrote no result"),
    ],
)
def test_the_end_of_what_a_command_printed_is_kept(tmp_path: Path, action: str, status: str, end: str) -> None:
    """1.2 MB, more than a pipe holds: a command whose output is not read would wait."""
    (tmp_path / "tool.py").write_text(PRINTS.replace("ACTION", action))
    with CommandEngine(f"{sys.executable} {tmp_path / 'tool.py'}", seconds=4.0) as engine:
        outcome = engine.run(ADD, [X, Y])
    assert str(outcome) == f"{status}: {end}; the adder is broken"
    lines = outcome.printed.splitlines()
    assert lines[0] == "..." and lines[-2:] == ["line 99999", "the adder is broken"]
    assert 1000 < len(outcome.printed) <= 2004
    assert all(line.removeprefix("line ").isdecimal() for line in lines[1:-1])


def test_a_command_that_leaves_a_process_running_does_not_wait_for_it(tmp_path: Path) -> None:
    (tmp_path / "tool.sh").write_text("echo stays; sleep 30 & exit 1")
    with CommandEngine(f"sh {tmp_path / 'tool.sh'}", seconds=20.0) as engine:
        outcome = engine.run(ADD, [X, Y])
    assert (str(outcome), outcome.seconds < 10) == ("error: exit status 1; stays", True)


def test_what_is_no_engine_is_refused() -> None:
    with pytest.raises(hk.ArgumentError, match="there is no engine 'xla': choose from reference"):
        engine_of("xla")
    with pytest.raises(hk.ArgumentError, match="there is no Python /nowhere/python"):
        engine_of("jaxlib@/nowhere/python")
    with pytest.raises(hk.ArgumentError, match="there is no command 'no-such-tool'"):
        CommandEngine("no-such-tool --run")
    assert "reference" in OWN


def test_arguments_that_are_tuples() -> None:
    module = hk.parse("""HloModule m
ENTRY e {
  p = (f32[2], (s32[], bf16[3])) parameter(0)
  q = f32[2] parameter(1)
  a = f32[2] get-tuple-element(p), index=0
  i = (s32[], bf16[3]) get-tuple-element(p), index=1
  b = bf16[3] get-tuple-element(i), index=1
  s = f32[2] add(a, q)
  ROOT t = (f32[2], bf16[3]) tuple(s, b)
}""")
    bf16 = np.array([1, 2, 3], hk.bf16.numpy)
    arguments = ((np.ones(2, np.float32), (np.int32(4), bf16)), np.ones(2, np.float32))
    found = hk.compare_engines(module, *arguments, engines=["strict"])
    assert [j.verdict for j in found.judgements] == ["equal"]


@pytest.mark.parametrize("opcode", ["acos", "mulhi"])
def test_ops_that_jaxlib_lacks_are_unsupported(opcode: str) -> None:
    """jaxlib 0.10.2 knows acos and cannot compile it, which 0.11 can, and has no mulhi."""
    operands = "x" if opcode == "acos" else "x, x"
    element = "f32" if opcode == "acos" else "s32"
    text = f"HloModule m\nENTRY e {{ x = {element}[2] parameter(0) ROOT r = {element}[2] {opcode}({operands}) }}"
    given = np.zeros(2, np.float32 if element == "f32" else np.int32)
    (found,) = hk.compare_engines(hk.parse(text), given, engines=["jaxlib"]).judgements
    if opcode == "acos" and jaxlib_version >= (0, 11):
        assert found.verdict in ("equal", "allowed")
    else:
        assert found.verdict == "unsupported" and found.message


def test_jaxlib_runs_custom_calls_of_lapack() -> None:
    module = hk.load(Path(__file__).parents[1] / "lapack" / "cholesky_f32.hlo")
    source = np.random.default_rng(0)
    with engine_of("jaxlib") as engine:
        outcome = engine.run(module, [made_up(source, p.shape) for p in module.entry.parameters])
    assert outcome.status == "ok", outcome
    assert len(outcome.leaves) == len([s for s in module.entry.root.shape.leaves() if s.is_array])


def test_a_flag_that_xla_does_not_know_is_named() -> None:
    with engine_of("jaxlib:--xla_nobody=1") as engine:
        outcome = engine.run(ADD, [X, Y])
    assert outcome.status == "crash"
    assert "] Unknown flag in XLA_FLAGS: --xla_nobody=1" in outcome.message


def test_the_message_of_a_crash_is_no_frame_of_its_stack(tmp_path: Path) -> None:
    lines = "F1127 19:44:09.858546   12601 rng.cc:58] Check failed: a == b", "*** Check failure stack trace: ***", "    @  0x7f8 f()"
    (tmp_path / "tool.py").write_text(f"import os; print({chr(10).join(lines)!r}, flush=True); os.abort()")
    with CommandEngine(f"{sys.executable} {tmp_path / 'tool.py'}") as engine:
        outcome = engine.run(ADD, [X, Y])
    assert str(outcome) == "crash: ended by SIGABRT; rng.cc:58] Check failed: a == b"
    assert outcome.printed.splitlines()[-1].strip() == "@  0x7f8 f()"
