"""`hk.compare_engines` and `hlokit compare`: verdicts on right and wrong engines."""

import json
import re
import sys
from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import hlokit as hk
from hlokit.judge.closeness.equality import differs
from hlokit.judge.compare import report
from hlokit.judge.compare.comparing import ALWAYS, _with_all_values, _with_elements
from hlokit.judge.engines.engine import CommandEngine, WorkerEngine
from hlokit.judge.reduce.search import Reduction
from hlokit.tools.main import main

TEXT = """HloModule m
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
ENTRY e {
  x = f32[40,8] parameter(0)
  y = f32[40,8] exponential(x)
  n = f32[40,8] negate(y)
  z = f32[] constant(0)
  ROOT r = f32[8] reduce(n, z), dimensions={0}, to_apply=sum
}"""
X = np.linspace(-2, 2, 320, dtype=np.float32).reshape(40, 8)

TOOL = """
import sys, numpy as np, hlokit as hk
module, given = hk.load(sys.argv[1]), np.load(sys.argv[2])
op = hk.OPS[{opcode!r}]
true = op.reference
op.reference = lambda self, *a, **k: {value}
result = hk.evaluate(module, *[given[f"in{{i}}"] for i in range(len(given.files))])
result = result if isinstance(result, tuple) else (result,)
np.savez(sys.argv[3], **{{f"out{{i}}": r for i, r in enumerate(result)}})
"""


def tool(folder: Path, opcode: str, value: str) -> str:
    """The command of an engine whose `opcode` is wrong."""
    path = folder / "tool.py"
    path.write_text(TOOL.format(opcode=opcode, value=value))
    return f"{sys.executable} {path} {{hlo}} {{inputs}} {{outputs}}"


def test_right_engines() -> None:
    found = hk.compare_engines(hk.parse(TEXT), X, engines=["passes", "strict", "compiled", "jaxlib"])
    verdicts = {j.engine: j.verdict for j in found.judgements}
    assert verdicts["passes"] == verdicts["strict"] == "equal"
    assert verdicts["compiled"] in ("equal", "allowed")
    assert verdicts["jaxlib"] in ("equal", "allowed")
    assert found.is_equal


@pytest.mark.parametrize(
    ("opcode", "value"),
    [
        ("negate", "true(self, *a, **k) * np.float32(1.001)"),
        ("exponential", "np.where(a[0] > 1.9, np.float32(0), true(self, *a, **k))"),
        ("reduce", "true(self, *a, **k) + np.float32(0.5)"),
    ],
)
def test_the_wrong_instruction_is_named_with_its_rules(tmp_path: Path, opcode: str, value: str) -> None:
    with CommandEngine(tool(tmp_path, opcode, value)) as engine:
        (found,) = hk.compare_engines(hk.parse(TEXT), X, engines=[engine]).judgements
    assert found.verdict == "wrong"
    assert f" {opcode}(" in found.instruction
    assert found.rules
    assert f"{found.rules[0]}: " in str(found)


def test_rounding_is_allowed_and_more_is_not(tmp_path: Path) -> None:
    for factor, verdict in ((1 + 2e-7, "allowed"), (1 + 1e-2, "wrong")):
        with CommandEngine(tool(tmp_path, "exponential", f"true(self, *a, **k) * np.float32({factor})")) as engine:
            (found,) = hk.compare_engines(hk.parse(TEXT), X, engines=[engine]).judgements
            assert found.verdict == verdict
            pattern = r"the greatest relative difference is (\S+) \(bound (\S+)\), of result 0 at \["
            told = re.search(pattern, found.message)
            assert told is not None
            greatest, bound = float(told[1]), float(told[2])
            assert 1e-7 < greatest < 4e-7 < bound if verdict == "allowed" else bound < greatest < 2e-2
            assert found.difference == pytest.approx(greatest, rel=0.1) and found.bound == pytest.approx(bound, rel=0.1)


def faulty(folder: Path, engine: str, file: str, old: str, new: str) -> WorkerEngine:
    """An engine of hlokit where a file has another text."""
    source = (Path(hk.__file__).parent / file).read_text()
    assert source.count(old) == 1
    module = "hlokit." + file.removesuffix(".py").replace("/", ".")
    (folder / "fault.json").write_text(json.dumps({"module": module, "source": source.replace(old, new)}))
    command = [sys.executable, "-m", "tests.judge.faulty", str(folder / "fault.json"), engine]
    return WorkerEngine(engine, command, 10.0, 0)


DOUBLED = "result = (tail * square).fma(r, r)", "result = (tail * square).fma(r, r + r)"

EXCHANGED = """HloModule m, replica_count=2, num_partitions=2
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
ENTRY e {
  x = f32[4] parameter(0)
  y = f32[4] sine(x)
  z = f32[4] all-to-all(y), dimensions={0}, replica_groups={{1,0}}
  ROOT w = f32[4] all-reduce(z), to_apply=add, channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true
}"""

SORTED = """HloModule m
less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT l = pred[] compare(a, b), direction=LT }
ENTRY e {
  x = f32[9] parameter(0)
  y = f32[9] add(x, x)
  s = f32[9] sort(y), dimensions={0}, to_apply=less
  ROOT z = f32[9] sine(s)
}"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    def run(self, module: HloModule) -> bool:\n", "    def run(self, module):\n        1 / 0\n"),
        ("    def run(self, module: HloModule) -> bool:\n", "    def run(self, module):\n        while True: pass\n"),
        (
            "    def run(self, module: HloModule) -> bool:\n",
            "    def run(self, module):\n        e = module.entry; e.set_root(e.root.operands[0]); return True\n",
        ),
    ],
    ids=["raises", "hangs", "changes the result"],
)
def test_the_guilty_pass_is_named(tmp_path: Path, old: str, new: str) -> None:
    with faulty(tmp_path, "passes", "passes/cse.py", old, new) as engine:
        engine.seconds = 4.0
        (found,) = hk.compare_engines(hk.parse(SORTED), np.arange(9, dtype=np.float32), engines=[engine]).judgements
    assert (found.is_finding, found.guilty) == (True, "cse")


def test_the_guilty_kernel_is_named(tmp_path: Path) -> None:
    with faulty(tmp_path, "compiled-1", "cpu/math/functions.py", *DOUBLED) as engine:
        (found,) = hk.compare_engines(hk.parse(SORTED), np.arange(9, dtype=np.float32), engines=[engine]).judgements
    assert (found.verdict, found.kernel) == ("wrong", ("z",))


def test_crashes_and_hangs_are_findings(tmp_path: Path) -> None:
    slow = tmp_path / "slow.py"
    slow.write_text("import time; time.sleep(60)")
    with CommandEngine("false") as one, CommandEngine(f"{sys.executable} {slow}", seconds=0.5) as other:
        found = hk.compare_engines(hk.parse(TEXT), X, engines=[one, other])
    assert [j.verdict for j in found.judgements] == ["failed", "failed"]
    assert "no result within 0.5 s" in str(found)
    assert not found.is_equal


@pytest.mark.parametrize("action", ["import os; os.abort()", "import time; time.sleep(60)"])
def test_a_crash_of_a_command_blames_no_instruction_and_no_rule(tmp_path: Path, action: str) -> None:
    """The command works on trivial programs, and ends or hangs on each with an exponential."""
    path = tmp_path / "tool.py"
    lines = "import sys; print('reading', flush=True); print('exponential is slow', file=sys.stderr, flush=True)"
    value = "exec('" + f"{lines}; {action}".replace("'", '"') + "')"
    with CommandEngine(tool(tmp_path, "exponential", value), seconds=10.0) as engine:
        (found,) = hk.compare_engines(hk.parse(TEXT), X, engines=[engine]).judgements
    assert path.exists() and found.verdict == "failed"
    assert (found.instruction, found.rules) == ("", ())
    first, *rest = str(found).splitlines()
    assert first.endswith("exponential is slow")
    assert rest == ["  printed:", "    reading", "    exponential is slow"]


def test_bad_arguments() -> None:
    module = hk.parse(TEXT)
    with pytest.raises(hk.ArgumentError, match="there is no engine 'gpu'"):
        hk.compare_engines(module, X, engines=["gpu"])
    with pytest.raises(hk.ArgumentError, match="no engines"):
        hk.compare_engines(module, X, engines=[])
    with pytest.raises(hk.ArgumentError):
        hk.compare_engines(module, X, X, engines=["strict"])


def run(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["compare", *map(str, words)])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(TEXT)
    assert run(file, "--engines", "strict") == 0
    assert capsys.readouterr().out == "strict: equal\n"
    wrong = tool(tmp_path, "negate", "true(self, *a, **k) + np.float32(1)")
    assert run(file, "--engines", "strict", "--engine-cmd", wrong, "--random", 3, "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert [j["verdict"] for j in told] == ["equal", "wrong"]
    assert "negate" in told[1]["instruction"]
    assert run(file, "--engines", "", "--engine-cmd", wrong, "--no-bisect") == 1
    assert "first wrong value" not in capsys.readouterr().out
    assert run(file, "--engines", "nobody") == 2
    assert "there is no engine 'nobody'" in capsys.readouterr().err
    assert run(file, "--timeout", 0) == 2
    assert run(tmp_path / "missing.hlo") == 2


COMPLEX = """HloModule m
ENTRY e {
  x = c64[4] parameter(0)
  y = c64[4] parameter(1)
  ROOT q = c64[4] divide(x, y)
}"""
INTEGERS = """HloModule m
ENTRY e {
  x = s64[1,4,1] parameter(0)
  y = s64[2,1,1] parameter(1)
  ROOT c = s64[1,3,1] convolution(x, y), window={size=2}, dim_labels=b0f_0io->b0f
}"""


def test_what_cannot_overflow_is_not_allowed_to(tmp_path: Path) -> None:
    x = np.array([1 + 1j, 2, 3j, 4 - 1j], np.complex64)
    for text, opcode, value, arguments in (
        (COMPLEX, "divide", "np.full_like(a[0], complex(np.nan, np.inf))", (x, x + 1)),
        (INTEGERS, "convolution", "true(self, *a, **k) * 0", (np.arange(4).reshape(1, 4, 1), np.ones((2, 1, 1), int))),
    ):
        with CommandEngine(tool(tmp_path, opcode, value)) as engine:
            (found,) = hk.compare_engines(hk.parse(text), *arguments, engines=[engine]).judgements
        assert found.verdict == "wrong", text
        assert f" {opcode}(" in found.instruction


def test_what_fails_is_looked_for_one_instruction_at_a_time(tmp_path: Path) -> None:
    with CommandEngine(tool(tmp_path, "negate", "1 / 0")) as engine:
        (found,) = hk.compare_engines(hk.parse(TEXT), X, engines=[engine]).judgements
    assert found.verdict == "failed"
    assert " negate(" in found.instruction
    assert found.message == "error: exit status 1; ZeroDivisionError: division by zero"
    assert found.rules == ()  # which say what values are, not that there is none
    lines = str(found).splitlines()
    assert lines[1:3] == ["  printed:", "    ..."]  # a long traceback
    assert lines[-1].startswith("  fails on: %n = ")


@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "float4_e2m1fn"])
def test_bits_beyond_the_width_of_an_element_do_not_count(name: str) -> None:
    element = np.dtype(getattr(ml_dtypes, name))
    high, low = (np.array([byte], np.uint8).view(element) for byte in (0xFD, 0x0D))
    assert differs((high,), (low,)) is None
    other = np.array([0x0E], np.uint8).view(element)
    assert differs((high,), (other,)) is not None


STAGES = {
    "before_optimizations": TEXT,
    "0000.simplification.after_pipeline-start.before_algsimp": TEXT,
    "0001.simplification.after_algsimp.before_dce": TEXT.replace("exponential(x)", "sine(x)"),
    "0002.simplification.after_dce.before_cse": "HloModule m\nENTRY e { nonsense }",
    "cpu_after_optimizations": TEXT.replace("exponential(x)", "sine(x)"),
    "cpu_after_optimizations-buffer-assignment": "no module",
}


def test_stages_of_a_dump_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in STAGES.items():
        (tmp_path / f"module_0003.jit_f.{name}.txt").write_text(text)
    assert run(tmp_path) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "jit_f before_optimizations: 4 stages after it: 1 equal, 2 wrong, 1 failed"
    assert lines[1].startswith("  jit_f 0001 simplification.after_algsimp.before_dce: wrong: result 0")
    assert lines.pop(2) == "    made by the pass simplification.after_algsimp.before_dce"
    assert lines[2].startswith("  jit_f 0002 simplification.after_dce.before_cse: failed: error: it cannot be read: ")
    assert lines[-1].startswith("  jit_f cpu_after_optimizations: wrong")
    assert run(tmp_path, "--json") == 1
    (told,) = json.loads(capsys.readouterr().out)
    assert [s["verdict"] for s in told["stages"]] == ["equal", "wrong", "failed", "wrong"]
    assert run(tmp_path, "--input", "x.npz") == 2
    assert "compare --input, --report: give engines too" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert run(tmp_path / "empty") == 2
    assert "no files of a dump" in capsys.readouterr().err


def test_engines_run_the_first_stage_of_each_module_and_each_of_several_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dump, file = tmp_path / "dump", tmp_path / "m.hlo"
    dump.mkdir()
    for name in ("module_0003.jit_f", "module_0005.jit_g"):
        (dump / f"{name}.before_optimizations.txt").write_text(TEXT)
        (dump / f"{name}.cpu_after_optimizations.txt").write_text("no module")
    file.write_text(TEXT)
    wrong = tool(tmp_path, "negate", "true(self, *a, **k) + np.float32(1)")
    assert run(dump, file, "--engines", "strict", "--engine-cmd", wrong, "--no-bisect", "--report", tmp_path / "found") == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    titles = ["jit_f before_optimizations", "jit_g before_optimizations", str(file)]
    assert [line.partition(": ")[0] for line in lines] == [title for title in titles for _ in range(2)]
    assert [": strict: equal" in line for line in lines] == [True, False] * 3
    assert sorted(path.parts[-3] for path in (tmp_path / "found").glob("*/1/report.md")) == ["0", "1", "2"]
    assert run(dump, "--engines", "strict", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [(one["program"], one["engines"][0]["verdict"]) for one in told] == [
        (str(dump / f"{name}.before_optimizations.txt"), "equal") for name in ("module_0003.jit_f", "module_0005.jit_g")
    ]


def test_a_program_that_the_reference_refuses_does_not_end_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.hlo").write_text("HloModule m\nENTRY e { x = f32[2] nonsense() }")
    (tmp_path / "b.hlo").write_text(TEXT)
    assert run(tmp_path / "a.hlo", tmp_path / "b.hlo", "--engines", "strict") == 2
    told = capsys.readouterr()
    assert told.err.startswith(f"error: {tmp_path / 'a.hlo'}: line 2") and told.out == f"{tmp_path / 'b.hlo'}: strict: equal\n"


def test_arguments_may_be_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(TEXT)
    assert run(file, "--engines", "passes", "--input", "f32[40,8]=1") == 0
    assert run(file, "--input", "f32[40,8]=1", "--input", "f32[]=1") == 2
    assert "--input: 2 values, m takes 1 argument" in capsys.readouterr().err


def test_an_engine_may_be_a_function() -> None:
    def off(module: hk.HloModule, x: object) -> object:
        result = hk.evaluate(module, x)
        return tuple([-part for part in result]) if isinstance(result, tuple) else -result

    def lacks(module: hk.HloModule, x: object) -> object:
        raise NotImplementedError("no reduce")

    found = hk.compare_engines(hk.parse(TEXT), X, engines=[hk.evaluate, off, lacks, lambda module, x: 1 / 0])
    assert [(j.verdict, j.message) for j in found.judgements[2:3]] == [("unsupported", "no reduce")]
    assert [j.verdict for j in found.judgements] == ["equal", "wrong", "unsupported", "failed"]
    assert found.judgements[1].engine.endswith(".off") and "ZeroDivisionError: " in found.judgements[3].message


@pytest.mark.parametrize(
    ("script", "verdict", "message"),
    [
        ("np.savez(out, out0=np.zeros(3, np.float32))", "wrong", "result 0 is float32[3], the reference's float32[8]"),
        ("np.savez(out, out0=np.full(8, 2, np.float32))", "undecided", "would tell the instruction, failed: "),
        ("print('no unit for tanh'); sys.exit(77)", "unsupported", "exit status 77; no unit for tanh"),
    ],
)
def test_a_command_that_writes_another_shape_is_wrong_and_one_that_says_so_lacks_something(
    tmp_path: Path, script: str, verdict: str, message: str
) -> None:
    file = tmp_path / "tool.py"
    file.write_text(f"import sys\nimport numpy as np\n_, hlo, given, out = sys.argv\n{script}\n")
    command = f"{sys.executable} {file} {{hlo}} {{inputs}} {{outputs}}"
    (found,) = hk.compare_engines(hk.parse(TEXT), X, engines=[command]).judgements
    assert found.verdict == verdict and message in found.message


def test_a_verdict_has_a_time_limit() -> None:
    loop = """
    HloModule m
    c { p = (s32[], f32[]) parameter(0) i = s32[] get-tuple-element(p), index=0 n = s32[] constant(1000000)
        ROOT l = pred[] compare(i, n), direction=LT }
    b { p = (s32[], f32[]) parameter(0) i = s32[] get-tuple-element(p), index=0 o = s32[] constant(1)
        j = s32[] add(i, o) x = f32[] get-tuple-element(p), index=1 y = f32[] sine(x) ROOT t = (s32[], f32[]) tuple(j, y) }
    ENTRY e { n = s32[] parameter(0) x = f32[] parameter(1) t = (s32[], f32[]) tuple(n, x)
        w = (s32[], f32[]) while(t), condition=c, body=b ROOT y = f32[] get-tuple-element(w), index=1 }"""

    def off(module: hk.HloModule, *arguments: object) -> object:
        return np.float32(0.25)

    compared = partial(hk.compare_engines, hk.parse(loop), np.int32(999_800), np.float32(1), engines=[off])
    (found,) = compared(verdict_seconds=0.05).judgements
    assert found.verdict == "undecided" and found.message.endswith("; the runs for a verdict took over 0.05 s")
    (found,) = compared(verdict_seconds=600).judgements
    assert "took over" not in found.message


def test_an_engine_may_be_named_by_its_command(tmp_path: Path) -> None:
    wrong = tool(tmp_path, "negate", "true(self, *a, **k) + np.float32(1)")
    (found,) = hk.compare_engines(hk.parse(TEXT), X, engines=[wrong]).judgements
    assert found.verdict == "wrong" and found.engine == wrong


def test_a_command_that_fails_on_everything_is_not_blamed_on_an_instruction(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(TEXT)
    assert run(file, "--engines", "", "--engine-cmd", "false", "--report", tmp_path / "report") == 1
    out = capsys.readouterr().out
    assert out == f"false: failed: error: exit status 1; {ALWAYS}\n"
    text = (tmp_path / "report" / "0" / "report.md").read_text()
    assert ALWAYS in text
    assert "exponential" in text


@pytest.mark.parametrize("opcode", ["negate", "exponential"])
def test_terminal_and_report_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str], opcode: str) -> None:
    """Verdict and instruction of the least program are those of the program, which the report repeats."""
    file = tmp_path / "m.hlo"
    file.write_text(TEXT)
    wrong = tool(tmp_path, opcode, "true(self, *a, **k) + np.float32(1)")
    assert run(file, "--engines", "", "--engine-cmd", wrong, "--report", tmp_path / "report", "--reduce-limit", 4) == 1
    out = capsys.readouterr().out
    assert "first wrong value" in out
    text = (tmp_path / "report" / "0" / "report.md").read_text()
    assert text.startswith(f"# {wrong}: wrong: ")
    assert f" {opcode}(" in text.splitlines()[0]
    assert out.strip() in text


def test_a_report_whose_least_program_is_judged_otherwise_has_the_given_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = hk.parse(TEXT)
    with CommandEngine(tool(tmp_path, "negate", "true(self, *a, **k) + np.float32(1)")) as engine:
        found = hk.compare_engines(module, X, engines=[engine])
        other = hk.parse("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] abs(x) }")
        least = Reduction(other, [np.ones(2, np.float32)])
        monkeypatch.setattr(report, "least", lambda *_: least)
        judgement = report.write_report(found, found.judgements[0], engine, tmp_path / "report")
    assert judgement is found.judgements[0]
    assert "negate" in (tmp_path / "report" / "program.hlo").read_text()


def test_what_fails_in_a_value_that_nothing_uses_is_named(tmp_path: Path) -> None:
    """In a called computation: the engine runs it, and so must what is tried by itself."""
    module = hk.parse("""HloModule m
f { x = f32[2] parameter(0) dead = f32[2] cosine(x) ROOT n = f32[2] negate(x) }
ENTRY e { x = f32[2] parameter(0) y = f32[2] sine(x) ROOT c = f32[2] call(y), to_apply=f }""")
    with CommandEngine(tool(tmp_path, "cosine", "1 // 0")) as engine:
        found = hk.compare_engines(module, np.zeros(2, np.float32), engines=[engine])
    (judgement,) = found.judgements
    assert judgement.verdict == "failed"
    assert judgement.instruction.startswith("%c = f32[2]{0} call(")


def test_programs_for_several_devices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module, file = hk.parse(EXCHANGED), tmp_path / "m.hlo"
    file.write_text(EXCHANGED)
    given = [[np.arange(4, dtype=np.float32) + device] for device in range(4)]
    found = hk.compare_engines(module, *given, engines=["passes", "compiled", "strict", "jaxlib"])
    assert [j.verdict in ("equal", "allowed") for j in found.judgements] == [True, True, True, False]
    assert found.judgements[3].verdict == "unsupported"
    with pytest.raises(hk.ArgumentError, match="1 lists of arguments, expected one for each of 4 devices"):
        hk.compare_engines(module, *given[:1])
    meet = "for sent in process.meet(self, members, blocks)"
    with faulty(tmp_path, "passes", "ops/exchanges.py", meet, meet + "[::-1]") as engine:
        (wrong,) = hk.compare_engines(module, *given, engines=[engine]).judgements
    assert wrong.verdict == "wrong"
    assert "all-to-all" in wrong.instruction
    np.savez(tmp_path / "in.npz", **{f"in{device}": own for device, (own,) in enumerate(given)})  # type: ignore[arg-type]
    assert run(file, "--engines", "strict", "--input", tmp_path / "in.npz") == 0
    assert run(file, "--engines", "strict") == 0
    assert "strict: equal" in capsys.readouterr().out


def test_a_rule_may_be_used_for_one_instruction_and_not_for_another() -> None:
    """XLA leaves out the initial value of a window of rank 0, as RWIN-9 lets it; the other has a reducer whose order
    matters."""
    module = hk.parse("""HloModule m
f { a = f64[] parameter(0) b = f64[] parameter(1) ROOT c = f64[] multiply(a, b) }
g {
  a = f64[] parameter(0) b = f64[] parameter(1) p = f64[] multiply(b, a) q = f64[] multiply(p, a)
  ROOT c = f64[] add(q, p)
}
ENTRY e {
  x = f64[] parameter(0) y = f64[6] parameter(1) i = f64[] parameter(2)
  r = f64[] reduce-window(x, i), to_apply=f
  s = f64[6] reduce-window(y, i), window={size=1}, to_apply=g
  ROOT t = (f64[], f64[6]) tuple(r, s)
}""")
    found = hk.compare_engines(module, 5.0, np.arange(6.0), 3.0, engines=["jaxlib"])
    assert [(j.verdict, j.rules) for j in found.judgements] == [("allowed", ("RWIN-9",))]


def test_a_part_of_a_complex_result_that_is_zero_may_be_rounded() -> None:
    """The real part of rsqrt(-4) is 0 or 3e-8, and what is made of the real part alone may be either."""
    module = hk.parse("""HloModule m
ENTRY e { x = c64[1] parameter(0) r = c64[1] rsqrt(x) ROOT p = f32[1] real(r) }""")
    given = np.array([-5.81], np.complex64)
    (found,) = hk.compare_engines(module, given, engines=["jaxlib"]).judgements
    assert found.verdict in ("equal", "allowed")


def test_a_wrong_element_of_a_computed_tuple_is_wrong(tmp_path: Path) -> None:
    """The verdict was "undecided" where the result is what a while or a reducer of several values returns."""
    module = hk.parse("""HloModule m
both {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  s = s32[] add(a, c)
  p = s32[] multiply(b, d)
  ROOT t = (s32[], s32[]) tuple(s, p)
}
ENTRY e {
  x = s32[5] parameter(0)
  z = s32[] constant(0)
  o = s32[] constant(1)
  ROOT r = (s32[], s32[]) reduce(x, x, z, o), dimensions={0}, to_apply=both
}""")
    engine = tool(tmp_path, "reduce", "(true(self, *a, **k)[0], np.int32(7))")
    with CommandEngine(engine) as opened:
        (found,) = hk.compare_engines(module, np.arange(1, 6, dtype=np.int32), engines=[opened]).judgements
    assert found.verdict == "wrong"
    assert " reduce(" in found.instruction


def test_values_that_nothing_uses_are_not_returned() -> None:
    """XLA runs a program with an unused bitcast and refuses one that returns it: the verdict was "undecided"."""
    module = hk.parse("""HloModule m
ENTRY e { x = s32[2,2] parameter(0) b = s32[4] bitcast(x) ROOT n = s32[2,2] negate(x) }""")

    def engine(module: hk.HloModule, x: object) -> object:
        if any(i.opcode == "bitcast" for i in module.entry.instructions) and module.entry.root.opcode == "tuple":
            raise ValueError("bitcast")
        return (np.int32([[1, 2], [3, 4]]),) if module.entry.root.opcode == "tuple" else np.int32([[1, 2], [3, 4]])

    (found,) = hk.compare_engines(module, np.int32([[1, 2], [3, 4]]), engines=[engine]).judgements
    assert found.verdict == "wrong" and " negate(" in found.instruction


def test_programs_that_return_all_values_have_names_that_differ() -> None:
    """The element of the loop that is added was named as one of its body, and XLA refused the program."""
    module = hk.parse("""HloModule m
body { s = (s32[]) parameter(0) get-tuple-element.10 = s32[] get-tuple-element(s), index=0 ROOT t = (s32[]) tuple(get-tuple-element.10) }
condition { s = (s32[]) parameter(0) ROOT c = pred[] constant(false) }
ENTRY e { x = s32[] parameter(0) s = (s32[]) tuple(x) ROOT w = (s32[]) while(s), condition=condition, body=body }""")
    shown = module.clone()
    _with_elements(shown.entry)
    (kept,) = _with_all_values(shown)
    assert kept.op.index == 0
    names = [i.name for i in shown.instructions()]
    assert len(set(names)) == len(names)
