"""The documents: every python block runs, generated pages are up to date."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from markdown_it import MarkdownIt

import hlokit as hk
from docs import generate, picture
from hlokit import rules
from hlokit.cpu.target import parse
from hlokit.hlo.op import OPS
from hlokit.tools.ops import rules_of

ROOT = Path(__file__).parents[1]
WRITTEN = [path for path in sorted((ROOT / "docs").rglob("*.md")) if "reference" not in path.parts]
PAGES = [ROOT / "README.md", *WRITTEN]
NOTEBOOKS = [page for page in WRITTEN if "file_format: mystnb" in page.read_text(encoding="utf-8")]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
CELL = re.compile(r"^```\{code-cell\}\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", NOTEBOOKS, ids=lambda page: page.stem)
def test_notebooks_run(page: Path, tmp_path: Path) -> None:
    """What their cells print is on the site, which fails to build if one raises."""
    cells = CELL.findall(page.read_text(encoding="utf-8"))
    assert len(cells) >= 5
    done = subprocess.run([sys.executable, "-c", "\n".join(cells)], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("path", sorted((ROOT / "docs/gallery").glob("*.hlo")), ids=lambda path: path.stem)
def test_programs_of_the_gallery_give_what_the_reference_gives(path: Path) -> None:
    head = re.match(r"// .+\n// .+\n(?:// diagram: (.+)\n)?(?://.*\n)*HloModule", path.read_text(encoding="utf-8"))
    assert head is not None  # a title, a description
    assert head[1] is None or (ROOT / f"docs/diagrams/{head[1]}.hlo").exists()
    module = hk.load(path)
    named = re.findall(r"^//.*`(loop\d+|%\w+)`", path.read_text(encoding="utf-8"), re.MULTILINE)
    llvm = hk.compile(module, target="x86-64-avx2").as_text("llvm")
    assert [name for name in named if name not in llvm] == []  # the text speaks of the listing
    random = np.random.default_rng(0)
    arguments = [random.normal(size=p.shape.dimensions).astype(np.float32) for p in module.entry.parameters]
    expected = hk.evaluate(module, *arguments)
    np.testing.assert_allclose(hk.compile(module)(*arguments), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("page", [p for p in PAGES if BLOCK.search(p.read_text())], ids=lambda p: p.name)
def test_python_blocks_run(page: Path, tmp_path: Path) -> None:
    """All blocks of a page in one process, in order, in a folder of their own."""
    code = "\n".join(BLOCK.findall(page.read_text(encoding="utf-8")))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_commands_exist() -> None:
    """Programs of the tests and the benchmark that pages tell to run."""
    pages = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "Makefile"]
    named = {name for page in pages for name in re.findall(r"python -m ((?:tests|bench)[.\w]*\w)", page.read_text())}
    assert len(named) > 20
    paths = {name: ROOT / name.replace(".", "/") for name in named}
    assert [n for n, p in paths.items() if not p.with_suffix(".py").exists() and not (p / "__main__.py").exists()] == []


def test_loops_shown_are_the_compilers() -> None:
    """The listing of docs/machine_code.md, but for the function's name, which hangs on its text."""
    page = (ROOT / "docs/machine_code.md").read_text()
    (shown,) = re.findall(r"^```\n(program softmax\n.*?)^```", page, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(BLOCK.findall(page)[0], names)
    made = hk.compile(names["module"], target=parse("x86-64-avx512")).as_text("loops")
    function = re.compile(r"@k\w+")
    assert function.sub("@k", made).strip() == function.sub("@k", shown).strip()


def test_generated_pages_are_up_to_date() -> None:
    done = subprocess.run([sys.executable, "-m", "docs.generate", "--check"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_module_says_what_lives_in_it() -> None:
    """The table of modules has each, with the first sentence of its docstring."""
    files = sorted((ROOT / "src/hlokit").rglob("*.py"))
    assert [str(path) for path in files if len(generate.says(path)) < 10] == []
    page = generate.modules_page()
    assert page.count("\n| `") == len([path for path in files if path.name != "__init__.py"])
    assert "| `verifier.py` | The verifier: checks a whole module against the rules of the language" in page


def test_demo_runs() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "examples/demo.py")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "[BCAST-3]" in done.stdout


README = (ROOT / "README.md").read_text(encoding="utf-8")
LINK = re.compile(r"\]\((\S+?)\)")
SITE, SOURCE = "https://hlokit.readthedocs.io/en/latest/", "https://github.com/hlokit/hlokit/blob/main/"
RAW = "https://raw.githubusercontent.com/hlokit/hlokit/main/"


def test_readme_links_are_absolute_and_what_they_name_exists() -> None:
    """PyPI shows README.md alone: a relative link would lead nowhere."""
    links = LINK.findall(README)
    assert len(links) > 10
    for link in links:
        if link.startswith(SITE):
            page = link.removeprefix(SITE).removesuffix(".html")
            assert not page or (ROOT / f"docs/{page}.md").exists(), link
            continue
        root = next((root for root in (SOURCE, RAW) if link.startswith(root)), None)
        assert root is not None and (ROOT / link.removeprefix(root)).exists(), link


def test_addresses_are_the_packages() -> None:
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    assert urls["Documentation"] == SITE and SOURCE.startswith(urls["Source"]) and {"Changelog", "Issues"} < {*urls}


def test_versions_of_the_package_are_one() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert declared == hk.__version__


def test_first_screen_of_the_readme() -> None:
    """Installing, at most ten lines of Python, a picture: within what a screen shows."""
    screen = "\n".join(README.splitlines()[:30])
    install, code, picture = (screen.find(text) for text in ("pip install ./hlokit", "```python", "![The program"))
    assert 0 < install < code < picture
    assert len([line for line in BLOCK.findall(README)[0].splitlines() if line]) <= 10


def test_pages_say_the_same_of_installing_and_of_systems() -> None:
    """The command that works before the package is on PyPI, and the table of systems."""
    command = "git clone https://github.com/hlokit/hlokit && pip install ./hlokit"
    index, install = ((ROOT / f"docs/{name}.md").read_text(encoding="utf-8") for name in ("index", "install"))
    assert [page.find(f"```sh\n{command}") > 0 for page in (README, index, install)] == [True] * 3
    table = README.partition("## Where it runs\n\n")[2].partition("\n\n")[0]
    assert table.count("\n| ") > 4 and table in install


def test_picture_shows_what_is_printed() -> None:
    """The text of docs/picture.svg is what docs/picture.py gets from the package now."""
    drawn = (ROOT / "docs/picture.svg").read_text(encoding="utf-8")
    assert words(drawn) == words(picture.svg()), "run python -m docs.picture"
    assert len(drawn) < 40_000 and "write&#160;hk.sub(x,&#160;y,&#160;[0])" in drawn


def words(svg: str) -> str:
    """The letters of an SVG's texts: how they are broken into elements is the drawing library's matter."""
    body = svg.partition("</style>")[2]
    return re.sub(r"\s+", "", html.unescape("".join(re.findall(r"<text[^>]*>(.*?)</text>", body, re.DOTALL))))


@pytest.mark.slow
def test_readme_passes_type_checkers(tmp_path: Path) -> None:
    """As a user's file, in pyright's basic and strict modes."""
    code = "\n".join(BLOCK.findall(README))
    for mode in ("basic", "strict"):
        (tmp_path / f"{mode}.py").write_text(f"# pyright: {mode}\n{code}", encoding="utf-8")
    calls = ("hk.compile(module)", "hk.compile(module, replicas=2)", "hk.compile(module, replicas=1)")
    more = "".join(f"reveal_type({call})\n" for call in calls)
    (tmp_path / "kinds.py").write_text(f"# pyright: strict\n{code}\n{more}", encoding="utf-8")
    (tmp_path / "wrong.py").write_text("import hlokit as hk\nhk.nonsense\nhk.HloModule('m')()\n", encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(tmp_path)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, cwd=tmp_path).stdout)["generalDiagnostics"]
    said = {(Path(d["file"]).stem, d["severity"]): [] for d in found}
    for diagnostic in found:
        said[Path(diagnostic["file"]).stem, diagnostic["severity"]].append(diagnostic["message"])
    kinds = [re.sub(r".*is \"(\w+)\"", r"\1", message) for message in said.pop(("kinds", "information"))]
    assert kinds == ["Executable", "DeviceExecutable", "Executable"]
    assert len(said.pop(("wrong", "error"))) >= 2
    assert {key: messages for key, messages in said.items() if key[1] == "error"} == {}


def test_pages_show_the_rules_letter_by_letter() -> None:
    """Chapters and pages of ops show the text of each rule as it is: no sign of it is taken as Markdown."""
    pages = generate.reference_pages()
    read = MarkdownIt("commonmark").enable("table").render
    for name in rules.CHAPTERS:
        shown = plain(read(pages[f"rules/{name}.md"]))
        for rule in (rule for rule in rules.rules().values() if rule.chapter == name):
            assert plain(html.escape(f"{rule.label} [{rule.kind}] {rule.text}".replace("`", ""))) in shown, rule.label
    for opcode in sorted(OPS):
        shown = plain(read(pages[f"ops/{opcode}.md"]))
        for rule in rules_of(OPS[opcode]):
            assert plain(html.escape(f"{rule.label} {rule.text}".replace("`", ""))) in shown, (opcode, rule.label)


def plain(page: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", page)).split())
