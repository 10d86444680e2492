"""`hk.fuzz`, `hlokit fuzz` and reports: findings of an engine that is wrong, reduced and told apart."""

from collections import Counter
from pathlib import Path
from typing import Literal

import pytest

import hlokit as hk
from hlokit.judge.compare.comparing import Judgement
from hlokit.judge.engines.outcome import Outcome
from hlokit.judge.fuzz import campaign
from hlokit.judge.fuzz.campaign import OF_SHARDINGS, again, cause_of, checked, drawn
from hlokit.judge.fuzz.graph import COLLECTIVES, RECIPES, Options
from hlokit.judge.fuzz.mutations import mutated
from hlokit.judge.fuzz.programs import grown, random_draw, random_module
from hlokit.judge.fuzz.shardings import sharded
from hlokit.tools.main import main
from tests.judge.test_compare import DOUBLED, TEXT, faulty, tool


def run(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, words)))
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_findings_are_reduced_told_apart_and_kept(tmp_path: Path) -> None:
    folder = tmp_path / "found"
    with faulty(tmp_path, "compiled-1", "cpu/math/functions.py", *DOUBLED) as engine:
        options = {"ops": ["sine", "negate", "add"], "types": ["f32"], "folder": folder, "reduce_seconds": 20}
        found = hk.fuzz(6, [engine], **options)  # type: ignore[arg-type]
        verdicts = dict(found.verdicts)
        assert verdicts.get("compiled-1: wrong", 0) > 1
        assert [cause for cause in found.findings if "sine" in cause] == list(found.findings)
        further = hk.fuzz(7, [engine], **options)  # type: ignore[arg-type]
        assert sum(further.verdicts.values()) == 7  # goes on where it was
        assert list(further.findings) == list(found.findings)
    (finding,) = found.findings.values()
    assert finding.folder is not None
    small = hk.load(finding.folder / "program.hlo")
    assert [i.opcode for i in small.entry.instructions] == ["parameter", "sine"]
    report = (finding.folder / "report.md").read_text()
    assert "The kernel of `" in report
    for heading in ("## Program", "## Arguments", "## Results", "## Reproduce", "## Versions"):
        assert heading in report
    assert "hlokit compare program.hlo --input arguments.npz --engines compiled-1" in report
    right = again(folder, ["compiled-1"])
    assert all(comparison.is_equal for comparison in right.values())


def test_modules_are_grown() -> None:
    module = hk.parse(TEXT)
    options = Options(opcodes=frozenset({"add", "transpose"}), types=("f32",), dynamic=False, layouts=False)
    bigger = grown(module, 3, options)
    hk.verify(bigger)
    assert len(bigger.entry) > len(module.entry)
    assert str(bigger) == str(grown(module, 3, options))
    assert str(module) == str(hk.parse(TEXT))


def test_modules_are_mutated(tmp_path: Path) -> None:
    module = hk.parse(TEXT)
    texts = {str(mutated(module, seed)) for seed in range(30)}
    assert len(texts) > 20
    for text in texts:
        hk.verify(hk.parse(text))
    assert str(mutated(module, 7)) == str(mutated(module, 7))
    assert str(module) == str(hk.parse(TEXT))
    found = hk.fuzz(4, ["strict"], mutate=[module])
    assert dict(found.verdicts) == {"strict: equal": 4}
    path = tmp_path / "m.hlo"
    path.write_text(TEXT)
    assert run("fuzz", "--mutate", path, "--engines", "strict", "--count", 2) == 0
    assert run("fuzz", "--mutate", path, "--ops", "add") == 2


def test_a_mutated_program_that_never_ends_is_left_out() -> None:
    text = """HloModule m
b { i = s32[] parameter(0) ROOT j = s32[] negate(i) }
c { i = s32[] parameter(0) ROOT p = pred[] constant(true) }
ENTRY e { x = s32[] parameter(0) ROOT w = s32[] while(x), condition=c, body=b }"""
    module = hk.parse(text)
    seed = next(s for s in range(50) if any(i.opcode == "while" for i in mutated(module, s).entry.instructions))
    found = hk.fuzz(1, ["strict"], seed=seed, mutate=[module], seconds=3)
    assert found.skipped == 1


def test_ops_have_weights() -> None:
    def count(opcode: str, weights: dict[str, int]) -> int:
        options = Options(opcodes=frozenset({"add", "negate"}), types=("f32",), weights=tuple(weights.items()))
        return sum(i.opcode == opcode for seed in range(40) for i in random_module(seed, options).instructions())

    assert count("negate", {"negate": 8}) > 2 * count("add", {"negate": 8})
    assert count("add", {"add": 8}) > 2 * count("negate", {"add": 8})
    assert run("fuzz", "--ops", "add=2,negate", "--types", "f32", "--engines", "strict", "--count", 1) == 0
    assert run("fuzz", "--ops", "add=many", "--engines", "strict") == 2
    assert run("fuzz", "--ops", "add=0", "--engines", "strict") == 2


@pytest.mark.parametrize("opcode", sorted(set(RECIPES) - set(COLLECTIVES)))
def test_each_op_can_be_drawn_alone(opcode: str) -> None:
    options = checked(Options(opcodes=frozenset({opcode}), dynamic=False))
    opcodes = [i.opcode for seed in range(3) for i in random_draw(seed, options).module.entry.instructions]
    assert opcode in opcodes


def test_ops_that_need_other_types_than_the_given_ones_have_them() -> None:
    """Indices are integers, and predicates pred, where only floats are to be drawn."""
    for seed in range(60):
        module = random_draw(seed, Options(types=("bf16", "f16"))).module
        hk.verify(module)
        starts = [o for i in module.instructions() if i.opcode == "dynamic-slice" for o in i.operands[1:]]
        assert all(start.shape.dtype.is_integral for start in starts)


def test_bad_arguments() -> None:
    for wrong, what in (({"ops": ["sum"]}, "no op 'sum'"), ({"types": ["f33"]}, "no element type 'f33'")):
        with pytest.raises(hk.ArgumentError, match=what):
            hk.fuzz(1, **wrong)  # type: ignore[arg-type]
    with pytest.raises(hk.ArgumentError, match="all-reduce is not drawn for one device"):
        hk.fuzz(1, ops=["all-reduce"])
    with pytest.raises(hk.ArgumentError, match="collectives are drawn alone"):
        hk.fuzz(1, collectives=True, shardings=True)
    with pytest.raises(hk.ArgumentError, match="count"):
        hk.fuzz(0)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("fuzz", "--engines", "strict", "--count", 2, "--ops", "add,multiply", "--types", "s32") == 0
    assert "2 strict: equal" in capsys.readouterr().out
    assert run("fuzz", "--rerun") == 2
    assert run("fuzz", "--rerun", "--folder", tmp_path) == 2
    assert "has no findings" in capsys.readouterr().err


def test_an_interrupted_campaign_says_how_to_continue(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(campaign, "compared", interrupted)
    words = "fuzz", "--count", "2", "--engines", "passes", "--ops", "add"
    assert run(*words, "--folder", tmp_path) == 130
    assert capsys.readouterr().err == f"interrupted; the same command continues from {tmp_path}\n"
    assert run(*words) == 130
    assert capsys.readouterr().err == "error: interrupted\n"


def test_report_of_compare(tmp_path: Path) -> None:
    file, folder = tmp_path / "m.hlo", tmp_path / "reports"
    file.write_text(TEXT)
    wrong = tool(tmp_path, "negate", "true(self, *a, **k) + np.float32(1)")
    assert run("compare", file, "--engines", "strict", "--engine-cmd", wrong, "--report", folder) == 1
    text = (folder / "1" / "report.md").read_text()
    assert "NEG-1: " in text
    assert "negate(" in text
    small = hk.load(folder / "1" / "program.hlo")
    assert [i.opcode for i in small.entry.instructions] == ["parameter", "negate"]
    assert f"--engine-cmd '{wrong}'" in text


def test_random_module_is_the_same() -> None:
    assert str(random_module(5)) == str(random_module(5))


def test_shardings_are_drawn_and_divided() -> None:
    """Parts with collectives give what the whole program gives; the same seed draws the same shardings."""
    first, again = (sharded(drawn(3, OF_SHARDINGS), 3) for _ in range(2))
    assert str(first) == str(again)
    assert "sharding={" in str(first)
    found = hk.fuzz(6, engines=["partitioned", "partitioned-compiled"], shardings=True, seed=20)
    assert not found.findings
    assert found.verdicts["partitioned: equal"] >= 2
    assert found.verdicts["partitioned-compiled: equal"] + found.verdicts["partitioned-compiled: allowed"] >= 2


def test_a_failure_is_one_cause_for_all_types() -> None:
    def cause(verdict: Literal["failed", "wrong"], dtype: str, message: str) -> str:
        return cause_of("x", Judgement("x", Outcome("ok"), verdict, message, f"%a.1 = {dtype}[2]{{0}} bitcast(%b.1)"))

    assert cause("failed", "f32", "error: no 3 in %b.1") == cause("failed", "s8", "error: no 12 in %c.4")
    assert cause("failed", "f32", "error: f32[3]{0}") == cause("failed", "s8", "error: s8[2,1]{1,0}")
    assert cause("failed", "f32", "error: no 3 in %b.1") != cause("failed", "f32", "crash: ended by SIGSEGV")
    assert cause("wrong", "f32", "far") != cause("wrong", "s8", "far")


def test_collectives_are_drawn() -> None:
    opcodes: Counter[str] = Counter()
    for seed in range(60):
        module = drawn(seed, collectives=True)
        hk.verify(hk.parse(str(module)))
        assert 1 < module.replica_count * module.num_partitions <= 8
        opcodes.update(i.opcode for i in module.entry.instructions)
    assert set(COLLECTIVES) - set(opcodes) <= {"partition-id"}
    assert str(drawn(3, collectives=True)) == str(drawn(3, collectives=True))
    found = hk.fuzz(8, collectives=True)
    assert not found.findings and not found.skipped
    assert found.verdicts["passes: equal"] == found.verdicts["strict: equal"] == 8


def test_wrong_collectives_are_found_and_kept(tmp_path: Path) -> None:
    """The kept program has the arguments of all its devices, and is right on an engine without the fault."""
    folder, meet = tmp_path / "found", "for sent in process.meet(self, members, blocks)"
    with faulty(tmp_path, "passes", "ops/exchanges.py", meet, meet + "[::-1]") as engine:
        found = hk.fuzz(6, [engine], ops=["all-to-all"], types=["s32"], collectives=True, folder=folder)
    assert any("all-to-all to s32" in cause for cause in found.findings)
    assert "device 1, " in next(folder.glob("*/report.md")).read_text()
    assert all(comparison.is_equal for comparison in again(folder, ["passes"]).values())


def test_a_program_without_shardings_is_not_divided() -> None:
    module = hk.parse("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] negate(x) }")
    (found,) = hk.compare_engines(module, [1, 2], engines=["partitioned"]).judgements
    assert found.verdict == "unsupported"
    assert "has no shardings" in found.message
