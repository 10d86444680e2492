"""What there is of tests for one op, in seconds: python -m tests.op gather [--count 30] [PYTEST ARGUMENTS]; make test-op OP=gather

Tests that name one of its rules or itself, those of every op, the bundled golden cases that hold it (reference and machine code), and
random modules of it, each run by the reference, after the passes and as machine code. Exit status 1 if something failed.
"""

from __future__ import annotations

import argparse
import gzip
import re
import sys
from collections import Counter
from collections.abc import Sequence

import pytest

import hlokit as hk
from hlokit.judge.fuzz.graph import Options
from hlokit.judge.fuzz.programs import random_draw
from tests.fuzz.machine_code import wrong
from tests.fuzz.run import finding
from tests.golden.check import FAILED, ROUTES
from tests.golden.run import run_lines
from tests.golden.sample import SAMPLE

_FOLDERS = (
    *("tests/rules", "tests/cpu", "tests/forms", "tests/stablehlo", "tests/text", "tests/passes", "tests/hlo"),
    *("tests/test_docstrings.py", "tests/test_registry.py"),
)

_OF_ALL = ("test_every_op", "test_every_rule", "test_every_form", "test_every_public_name")
"""How tests begin that are about every op."""


class Selection:
    """A pytest plugin: keeps the tests that name the op's rules, or the op in their ids, and those of every op."""

    def __init__(self, opcode: str) -> None:
        rules = hk.OPS[opcode].rules
        self.rules = tuple(rules.split()) if isinstance(rules, str) else tuple(rules)
        self.words = re.compile(rf"(?<![a-z]){re.escape(opcode).replace('-', '[-_]')}(?![a-z])")

    def names(self, item: pytest.Item) -> bool:
        labels = [label for mark in item.iter_markers("rule") for label in mark.args]
        of_op = (label == rule or label.startswith(f"{rule}-") for label in labels for rule in self.rules)
        name = item.nodeid.rpartition("::")[2]
        return any(of_op) or name.startswith(_OF_ALL) or self.words.search(name) is not None

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        kept = [item for item in items if self.names(item)]
        config.hook.pytest_deselected(items=[item for item in items if not self.names(item)])
        items[:] = kept


def recorded(opcode: str) -> int:
    """Runs the bundled cases that hold the op; gives how many failed."""
    lines = gzip.decompress(SAMPLE.read_bytes()).decode().splitlines()
    lines = [line for line in lines if re.search(rf"[ ]{re.escape(opcode)}\(", line)]
    verdicts = [v for engine in ("reference", "compiled") for v in run_lines(lines, ROUTES, 1, engine)]
    for verdict in verdicts:
        if verdict.status == FAILED:
            print(verdict)
    counts = Counter(verdict.status for verdict in verdicts)
    print(f"{len(lines)} recorded cases: {', '.join(f'{count} {status}' for status, count in counts.items()) or 'none'}")
    return counts[FAILED]


def drawn(opcode: str, count: int) -> int:
    """Runs random modules in which the op comes often; gives how many findings there were."""
    failed = holding = seed = 0
    while holding < count and seed < 20 * count:
        module = random_draw(seed, Options(opcodes=frozenset((opcode, "add")))).module
        if any(i.opcode == opcode for i in module.instructions()):
            holding += 1
            found = finding(lambda seed, module=module: wrong(module, seed), seed)
            if found:
                failed += 1
                print(f"seed {seed}: {found}")
        seed += 1
    print(f"{holding} random modules: {failed} findings")
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.op", description=__doc__)
    parser.add_argument("opcode")
    parser.add_argument("--count", type=int, default=30, help="random modules (default: %(default)s)")
    options, more = parser.parse_known_args(arguments)
    if options.opcode not in hk.OPS:
        print(f"{options.opcode!r} is not an opcode", file=sys.stderr)
        return 2
    status = pytest.main(
        ["-q", "-m", "not slow", "-p", "no:cacheprovider", *(more or _FOLDERS)], [Selection(options.opcode)]
    )
    failed = recorded(options.opcode) + drawn(options.opcode, options.count)
    return 1 if failed or status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) else 0


if __name__ == "__main__":
    sys.exit(main())
