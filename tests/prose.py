"""Words and phrases that the documentation does not use: `python -m tests.prose` prints each place. `make lint` runs it.

codespell finds what is misspelt; this finds what is not plain technical English: archaic words, turns that a reader has
to read twice, and words that praise or fill.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PHRASES = {
    r"what came of (it|them)": "the result",
    r"(gets?|is given) zeros": "zeros are its result",
    r"that are not here": "that are not supported",
    r"a (second|third|fourth) time": "again",
    r"anew": "again",
    r"for ever": "forever",
    r"at hand": "available",
    r"in the midst": "during",
    r"at par": "as fast as",
    r"(can|could|to|may) be had": "be installed, be bought",
    r"(as|save) for ever": "as before",
    r"told apart": "distinguished",
    r"heretofore|herein|hereby|therein|thereby|thereof|whereby|wherein|whereof": "in this, by which, ...",
    r"albeit|amidst|amongst|betwixt|ere|lest|nay|nigh|oft|perchance|thence|thither|'tis|unto|whence|whilst|whither": "a modern word",
    r"hangs? on|hinges? on": "depends on",
    r"makes? do|does without it": "needs no",
    r"(brought|brings?) nothing": "gained nothing",
    r"(do|does|did) otherwise": "behaves differently",
    r"(gone|going) through": "read, visited, tried",
    r"(stands?|lies?|lay) so": "is placed in this way",
    r"(stick|sticks|sticking) out": "extends beyond",
    r"(has|had) not ended": "did not finish",
    r"goes? away": "is removed",
    r"dearest|dearer": "slowest, largest",
    r"untried|unseen": "not tried, not tested",
    r"in sight": "visible",
    r"(for|of|to|by) who": "for those who, for whom",
    r"beside (XLA|jaxlib)('s)?": "compared with",
    r"(takes?|took) (off|away|out) what": "removes what",
    r"beside": "next to, besides, compared with",
    r"mend(ed|s|ing)?": "fix, correct",
    r"looked into": "investigated",
    r"hears? (signals|Ctrl-C)": "reacts to",
    r"(is|are) no targets?": "there is no implementation",
    r"but for": "except for",
    r"in the place of": "instead of",
    r"as \w+ (has|have) (it|them)": "as in",
    r"(do|does) not fit each other": "contradict each other, do not match",
    r"com(e|es) of": "results from",
    r"as (they|it) stands?": "unchanged",
    r"as one likes": "freely",
    r"(turn|pass)(es)? of (a |the )?loops?": "iteration",
    r"further off": "farther away",
    r"who waits for whom": "which devices wait for which",
    r"some (hundred|thousand|ten|fifty)s?": "hundreds of, about fifty",
    r"heed(s|ed)?": "obeys, reads",
    r"(is|are|was|were) wanted": "is needed, is the goal",
    r"the half of (it|them)": "half of it",
    r"go(es)? by (vectors|parts|digits)": "works on",
    r"wholly": "entirely",
    r"utili[sz]e[sd]?|utili[sz]ing|leverag(e[sd]?|ing)": "use",
    r"in order to": "to",
    r"simply|obviously|clearly|basically|trivially|of course|needless to say": "(nothing)",
    r"seamless(ly)?|robust(ly)?|blazing(ly)?|powerful|cutting-edge|state-of-the-art|world-class|elegant(ly)?": "(nothing)",
    r"just works|batteries included|under the hood|rock solid": "what it does",
}
"""Regular expressions of whole words, with what to write instead."""

_CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)


def pages() -> list[Path]:
    """The pages that users and developers read."""
    written = [path for path in (ROOT / "docs").rglob("*.md") if "reference" not in path.parts]
    rules = [*(ROOT / "src/hlokit/rules").glob("*.md")]
    return sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *written, *rules])


def faults(text: str) -> list[tuple[int, str, str]]:
    """(line, found, instead) for each phrase in the prose of a page; code does not count."""
    prose = _CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)
    found: list[tuple[int, str, str]] = []
    for phrase, instead in PHRASES.items():
        for match in re.finditer(rf"\b(?:{phrase})\b".replace(" ", r"\s+"), prose, re.IGNORECASE):
            found.append((prose.count("\n", 0, match.start()) + 1, " ".join(match[0].split()), instead))
    return sorted(found)


def main() -> int:
    count = 0
    for path in pages():
        for line, found, instead in faults(path.read_text(encoding="utf-8")):
            print(f"{path.relative_to(ROOT)}:{line}: {found!r}: write {instead}")
            count += 1
    return bool(count)


if __name__ == "__main__":
    sys.exit(main())
