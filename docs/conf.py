"""The site: `make docs`. Pages are Markdown; tutorials are notebooks in Markdown, which the build executes."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

sys.path.insert(0, str(Path(__file__).parents[1]))  # Sphinx runs this file from anywhere

import hlokit
from docs import chart, diagram, scale_chart
from docs.generate import write_reference

project = "hlokit"
version = release = hlokit.__version__
author = "The hlokit authors"
copyright = "2026, the hlokit authors"
extensions = ["myst_nb", "sphinx_design", "sphinx_copybutton", "sphinxext.opengraph", "notfound.extension"]
exclude_patterns = ["status.md", "diagrams"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
highlight_language = "none"  # of blocks that name no language
smartquotes = False  # `--flag` and "..." stand as they are written
nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = f"hlokit {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_baseurl = "https://hlokit.readthedocs.io/en/latest/"
html_theme_options = {
    "source_repository": "https://github.com/hlokit/hlokit/",
    "source_branch": "main",
    "source_directory": "docs/",
}
ogp_site_url = html_baseurl
ogp_social_cards = {"enable": False}
ogp_image = "https://raw.githubusercontent.com/hlokit/hlokit/main/docs/picture.svg"
notfound_urls_prefix = "/en/latest/"
notfound_context = {
    "title": "Page not found",
    "body": '<h1>Page not found</h1><p><a href="/en/latest/index.html">Go to the first page</a>, or search.</p>',
}

write_reference()


class HloDiagram(SphinxDirective):
    """`{hlo-diagram} NAME`: the diagram of docs/diagrams/NAME.hlo, with its program below."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        path = diagram.FOLDER / f"{self.arguments[0]}.hlo"
        self.env.note_dependency(str(path))
        return [nodes.raw("", diagram.figure(path.read_text(encoding="utf-8")), format="html")]


class BenchmarkChart(SphinxDirective):
    """`{benchmark-chart} NAME`: the ratios of docs/benchmark/NAME.csv as a chart."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        path = chart.FOLDER / f"{self.arguments[0]}.csv"
        self.env.note_dependency(str(path))
        return [nodes.raw("", f'<div class="hlo-wide">{chart.chart(path)}</div>', format="html")]


class ScaleChart(SphinxDirective):
    """`{scale-chart} seconds`: bars of docs/scale/figures.csv, also `bytes` and `memory`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(scale_chart.FILE))
        return [nodes.raw("", f'<div class="hlo-wide">{scale_chart.chart(self.arguments[0])}</div>', format="html")]


def name_cells(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Gives the files of notebooks' cells, which tracebacks and errors name, a name that stays the same."""
    if "body" in context:
        context["body"] = re.sub(r"/tmp/ipykernel_\d+/\d+\.py", "notebook.py", context["body"])


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", name_cells)
    app.add_directive("hlo-diagram", HloDiagram)
    app.add_directive("benchmark-chart", BenchmarkChart)
    app.add_directive("scale-chart", ScaleChart)
    return {"parallel_read_safe": True}
