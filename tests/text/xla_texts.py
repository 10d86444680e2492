"""docs/xla_texts.md: each HLO text of XLA's own tests that is refused or gives a different result, with the cause.

    python -m tests.text.xla_texts --suites ../shared/suites --corpus FOLDER [--log FILE] [--page docs/xla_texts.md]

FOLDER is made by the suites' hlo_corpus.py. Runs their corpus_check.py on the half of the texts that is not kept for validation
(some minutes), or reads what it printed with `--show 100000` from FILE. xla_texts.toml has the reasons; a text
without one is listed as not judged, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REASONS = Path(__file__).with_name("xla_texts.toml")
ROOT = Path(__file__).parents[2]
NOT_JUDGED = "not judged yet"
_RESULTS = {
    "parses": "read by hlokit, of the modules that jaxlib reads",
    "same text": "printed by hlokit as the same text, of these modules",
    "agrees": "evaluated with equal results, of the modules that were run",
    "refuses what XLA refuses": "refused by hlokit, of the modules that jaxlib refuses",
}
_SHARE = re.compile(f"({'|'.join(_RESULTS)}) ([^;]+)")
_LINE = re.compile(r"  (\S+)\.(\d{3})\.hlo: (good|bad); (\{.*\})$")


@dataclass(frozen=True)
class Finding:
    """A text that is not read, gives a different result, or is read although jaxlib does not read it."""

    file: str
    number: str
    kind: str
    what: str


def findings(output: str) -> Iterator[Finding]:
    """The findings in what corpus_check.py printed."""
    for line in output.splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        answer = json.loads(found[4])
        if found[3] == "bad":
            yield Finding(found[1], found[2], "read, but not by jaxlib", "")
        elif answer.get("parse") == "accepted":
            yield Finding(found[1], found[2], "a different result", answer["run"])
        else:
            yield Finding(found[1], found[2], "refused", answer.get("why", answer.get("parse", "")))


def reasons(path: Path = REASONS) -> dict[tuple[str, str], str]:
    """The reason of each text, by file and number."""
    found: dict[tuple[str, str], str] = {}
    for row in tomllib.loads(path.read_text(encoding="utf-8"))["reason"]:
        for text in row["texts"]:
            file, *numbers = text.split()
            found |= {(file, number): row["name"] for number in numbers}
    return found


def page(output: str, known: dict[tuple[str, str], str]) -> str:
    """The page, as text."""
    listed = list(findings(output))
    shares = output.strip().splitlines()[-1].partition(": ")[2]
    lines = [
        "# XLA's own texts",
        "",
        "XLA's own tests (of January 2025) contain HLO modules, as raw strings and as files. Here `hk.parse` reads these modules, the",
        "reference evaluates them, and the results are compared with those of jaxlib 0.10.2, which reads texts without verifying them.",
        "Only half of the modules are used in this way; the others are kept for validation.",
        "",
        "| result | modules |",
        "| --- | --- |",
        *(f"| {_RESULTS[name]} | {share} |" for name, share in _SHARE.findall(shares)),
        "",
        "The differences are listed below, each with its cause, as judged from the test that contains the module and from the rules of the",
        "language. `python -m tests.text.xla_texts` writes this page.",
        "",
    ]
    for kind in ("refused", "a different result", "read, but not by jaxlib"):
        some = [finding for finding in listed if finding.kind == kind]
        if not some:
            continue
        lines += [f"## {kind[0].upper()}{kind[1:]}: {len(some)}", ""]
        names = list(dict.fromkeys(known.get((f.file, f.number), NOT_JUDGED) for f in some))
        for name in names:
            own = [f for f in some if known.get((f.file, f.number), NOT_JUDGED) == name]
            lines += [f"- {name}: {len(own)}", *(f"  - `{f.file}` {f.number}{_why(f)}" for f in own)]
        lines.append("")
    return "\n".join(lines)


def _why(finding: Finding) -> str:
    """The rule that a refused text breaks."""
    label = re.search(r"\[([A-Z0-9-]+)\](?!.*\[[A-Z])", finding.what)
    return f" ({label[1]})" if label is not None else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suites", type=Path, help="the folder of corpus_check.py")
    parser.add_argument("--corpus", type=Path, help="the folder of texts")
    parser.add_argument("--log", type=Path, help="what corpus_check.py printed")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "xla_texts.md")
    options = parser.parse_args()
    if options.log is None and (options.suites is None or options.corpus is None):
        parser.error("--suites and --corpus, or --log")
    if options.log is None:
        command = [sys.executable, "corpus_check.py", str(options.corpus.resolve()), "--half", "dev", "--show", "100000"]
        output = subprocess.run(command, cwd=options.suites, capture_output=True, text=True, check=True).stdout
    else:
        output = options.log.read_text(encoding="utf-8")
    text = page(output, reasons())
    options.page.write_text(text, encoding="utf-8")
    print(output.strip().splitlines()[-1])
    return int(NOT_JUDGED in text)


if __name__ == "__main__":
    sys.exit(main())
