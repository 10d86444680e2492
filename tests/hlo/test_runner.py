"""Files with expectations: what must fail fails, and says why."""

from __future__ import annotations

import pytest

from tests.hlo.runner import Program, Unmet, check

SUM = """ENTRY e { x = s32[2] parameter(0)
 z = s32[] constant(0)
 b = s32[2] broadcast(z), dimensions={}
 ROOT r = s32[2] add(x, b) }
"""
ADDS = "// TEXT: s32[2]{0} add("
DOUBLE = "ENTRY e { x = f32[2] parameter(0)\n ROOT r = f32[2] add(x, x) }\n"
REFUSED = "ENTRY e { x = f32[2] parameter(0)\n ROOT r = f32[3] add(x, x) }\n"
FAILS = 'ENTRY e { x = f32[2] parameter(0)\n ROOT r = f32[2] custom-call(x), custom_call_target="nobody" }\n'


@pytest.mark.parametrize(
    "text",
    [
        f"{ADDS}\n{SUM}",
        f"// TEXT-NOT: multiply\n{ADDS}\n// TEXT: [[ROOT:ROOT]]\n{SUM}".replace("TEXT: [[", "TEXT-NOT: ["),
        f"// passes: algsimp, dce\n// TEXT: parameter(0)\n// TEXT-NOT: add(\n{SUM}",
        f"// argument: s32[2] {{3, 4}}\n// RESULT: s32[2] {{3, 4}}\n{SUM}",
        f"// argument: s32[2] {{3, 4}}\n// RESULT[strict, jaxlib]: s32[2] {{3, 4}}\n{SUM}",
        f"// argument: f32[2] {{nan, -0}}\n// RESULT: f32[2] {{-nan, -0}}\n{DOUBLE}",
        f"// argument: f32[2] {{1, 2}}\n// tolerance: 1e-3\n// RESULT: f32[2] {{2.001, 4}}\n{DOUBLE}",
        f"// target: x86-64-avx2\n// LOOPS: add(x[i], x[i])\n// ASM: vaddss\n{DOUBLE}",
        f"// ERROR: [SHAPE\n{REFUSED}".replace("[SHAPE", "f32[3]"),
        f"// argument: f32[2] {{1, 2}}\n// ERROR[jaxlib]: nobody\n// ERROR: nobody\n{FAILS}",
        f"// Prose may be anywhere.\n{ADDS}\n// here, too: nothing\n{SUM}",
    ],
)
def test_holds(text: str) -> None:
    program = Program(text)
    check(program)
    assert program.checks()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (SUM, "nothing is expected"),
        (f"// TEST: add\n{SUM}", "'TEST' is not a directive"),
        (f"// Note: add\n{ADDS}\n{SUM}", "'Note' is not a directive"),
        (f"// TEXT-NEVER: add\n{SUM}", "TEXT-NEVER is not a directive"),
        (f"// TEXT-NOT: multiply\n{SUM}", "TEXT-NOT alone"),
        (f"// TEXT:\n{SUM}", "says nothing"),
        (f"// TEXT: multiply\n{SUM}", 'Couldn\'t match "multiply"'),
        (f"{ADDS}\n// TEXT-NOT: ROOT\n// TEXT: broadcast\n{SUM}", "Couldn't match"),
        (f"// TEXT: HloModule\n// TEXT-NOT: add(\n{SUM}", "excluded string found"),
        (f"// passes: algsimp, dce\n{ADDS}\n{SUM}", "Couldn't match"),
        (f"// argument: s32[2] {{1, 2}}\n{ADDS}\n{SUM}", "`argument:` is for no check"),
        (f"// passes: dce\n// argument: s32[2] {{1, 2}}\n// RESULT[strict]: s32[2] {{1, 2}}\n{SUM}", "`passes:` is for no"),
        (f"// argument: s32[2] {{1, 2}}\n// RESULT: s32[2] {{1, 3}}\n{SUM}", "reference gives s32[2] {1, 2}"),
        (f"// argument: s32[2] {{1, 2}}\n// RESULT: s64[2] {{1, 2}}\n{SUM}", "dtype: got s32, want s64"),
        (f"// argument: s32[2] {{1, 2}}\n// RESULT[XLA]: s32[2] {{1, 2}}\n{SUM}", "RESULT[XLA] is not"),
        (f"// engines: XLA\n// RESULT: s32[2] {{1, 2}}\n{SUM}", "'XLA' is not one of"),
        (f"// argument: f32[2] {{-0, 1}}\n// RESULT: f32[2] {{0, 2}}\n{DOUBLE}", "gives f32[2] {-0, 2}"),
        (f"// argument: f32[2] {{1, 2}}\n// RESULT: f32[2] {{2.001, 4}}\n{DOUBLE}", "gives f32[2] {2, 4}"),
        (f"// LOOPS: add\n{SUM}", "needs a `target:`"),
        (f"// argument: s32[2] {{1, 2}}\n// ERROR: no\n{SUM}", "reference raises no error"),
        (f"{ADDS}\n{REFUSED}", "the program is refused"),
        (f"// ERROR: f32[2]\n// RESULT: f32[2] {{1, 2}}\n{REFUSED}", "the program is refused"),
        (f"// passes: dce\n// ERROR: f32[2]\n{REFUSED}", "`passes:` is for no check"),
        (f"// ERROR: f32[7]\n{REFUSED}", "Couldn't match"),
        (f"// argument: f32[2] {{1, 2}}\n// RESULT: f32[2] {{1, 2}}\n{FAILS}", "reference: "),
        (f"// argument: f32[2] {{1, 2}}\n// ERROR: somebody\n{FAILS}", "Couldn't match"),
    ],
)
def test_fails(text: str, told: str) -> None:
    with pytest.raises(Unmet) as caught:
        check(Program(text))
    assert told in str(caught.value)
