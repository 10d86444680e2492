"""The viewer's page as text: complete, alone, and without markup from programs."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.tools.main import main
from hlokit.view.data import FORMAT, PageData
from hlokit.view.page import View, page
from tests.golden.programs import BUNDLED, read_program
from tests.view.bundle import ASSETS, recorded

HOSTILE = Path(__file__).with_name("hostile.hlo")


class Tags(HTMLParser):
    """The tags of a page with their attributes, and the text of its scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(("/" + tag, {}))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] in ("script", "style"):
            self.texts.append((self.tags[-1][0], data))


def data_of(view: View) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', view.html, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_the_stages_hold_every_instruction_and_its_origins() -> None:
    module = hk.parse(read_program(BUNDLED, "gru_scan_grad").hlo)
    data = data_of(module.view())
    strings, stages = data["strings"], data["stages"]
    assert data["format"] == FORMAT and len(stages) > 3
    assert [strings[n] for n in stages[0]["name"]] == [i.name for i in module.instructions()]
    for before, stage in pairwise(stages):
        assert all(len(stage[column]) == len(stage["name"]) for column in ("opcode", "shape", "text", "scope", "origins"))
        assert all(flat and max(flat[::2]) < len(before["name"]) for flat in stage["origins"])
    after = hk.optimize(module)
    assert [strings[n] for n in stages[-1]["name"]] == [i.name for i in after.instructions()]


def test_an_executable_s_page_has_code_memory_and_times() -> None:
    recorded_program = read_program(BUNDLED, "layernorm_grad")
    executable = hk.compile(hk.parse(recorded_program.hlo))
    data = data_of(executable.view(executable.profile(*recorded_program.inputs, repeat=1)))
    assert "".join(f"{line[0]}\n" for line in data["code"]["loops"]) == executable.as_text("loops")
    assert data["code"]["llvm"] == executable.as_text("llvm")
    assert data["memory"]["peak"] == executable.memory_analysis().peak_memory_in_bytes
    count = len(data["stages"][-1]["name"])
    for step in data["code"]["steps"]:
        assert step["instructions"] and max(step["instructions"]) < count
    assert {s["name"] for s in data["profile"]["steps"]} <= {s["name"] for s in data["code"]["steps"]}


def test_a_hostile_program_is_text() -> None:
    module = hk.load(HOSTILE)
    for view in (module.view(), hk.compile(module).view()):
        assert "\u202e" not in view.html and json.dumps(data_of(view)).isascii()
        assert view.html.split('id="data">')[1].split("\n")[0].isprintable()
        parsed = Tags(view.html)
        kinds = {tag for tag, _ in parsed.tags}
        assert not {"img", "b", "iframe", "object", "link", "a"} & kinds
        assert [dict(a).get("type") for tag, a in parsed.tags if tag == "script"] == ["application/json", None, None]
        assert not [name for _, attributes in parsed.tags for name in attributes if name.startswith("on")]
        assert not re.search(r"(?:src|href)\s*=\s*[\"']?(?:https?:)?//", view.html.split('id="data"')[0])


def test_the_policy_allows_the_page_s_own_scripts_alone() -> None:
    view = hk.load(HOSTILE).view()
    parsed = Tags(view.html)
    (policy,) = (a["content"] for tag, a in parsed.tags if tag == "meta" and "http-equiv" in a)
    assert policy is not None and policy.startswith("default-src 'none';") and "unsafe" not in policy
    for kind, text in parsed.texts:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert (f"'sha256-{digest}'" in policy) == (text[0] != "{"), kind
    assert "http:" not in policy and "https:" not in policy


def test_the_bundled_library_is_the_recorded_one() -> None:
    assert hashlib.sha256((ASSETS / "dagre.min.js").read_bytes()).hexdigest() == recorded()
    assert sum(path.stat().st_size for path in ASSETS.iterdir()) < 300_000


def test_notes_are_details_of_an_instruction() -> None:
    """The format has a place for what a debugger knows of an instruction."""
    module = hk.load(HOSTILE)
    data = PageData("values")
    data.stage("input", module)
    data.note(0, module.entry.root, [("value", "[1 2 3 4]")])
    root = module.instructions().index(module.entry.root)
    assert data_of(page(data.json()))["notes"] == {"0": {str(root): [["value", "[1 2 3 4]"]]}}


def test_pages_are_the_same_for_the_same_program() -> None:
    text = read_program(BUNDLED, "rmsnorm_swiglu").hlo
    assert hk.parse(text).view().html == hk.parse(text).view().html


def test_the_command_writes_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (["--graph"], ["-o", "other.html", "--random", "0"]):
        with pytest.raises(SystemExit) as ended:
            main(["view", str(HOSTILE), *words])
        assert ended.value.code == 0, capsys.readouterr()
    assert "stages" in Path("hostile.html").read_text(encoding="utf-8")
    assert '"profile":' in Path("other.html").read_text(encoding="utf-8")


def test_notebooks_show_pages_in_frames_of_their_own() -> None:
    b = hk.Builder("two")
    module = b.build(b.parameter(0, hk.f32[4], "x") * 2.0)
    frame = module.view()._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert frame.startswith('<iframe sandbox="allow-scripts"') and "<script" not in frame
    np.testing.assert_array_equal(hk.evaluate(module, np.ones(4, np.float32)), 2)
