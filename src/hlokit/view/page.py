"""The viewer's page: one HTML file of the data, the layout library and our own script.

Data from programs is JSON in a data block, in ASCII and without "<", which the script shows as text. The
page's policy allows the two scripts and the style sheet by their hashes, and nothing from anywhere else.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class View:
    """A page that shows a program; a notebook shows it.

    Attributes
    ----------
    title : str
        The page's title.
    html : str
        The file's text.

    Examples
    --------
    >>> b = hk.Builder()
    >>> view = b.build(hk.neg(b.parameter(0, hk.f32[2]))).view()
    >>> view.html.startswith("<!doctype html>")
    True
    """

    title: str
    html: str

    def __repr__(self) -> str:
        return f"<View of {self.title}: {len(self.html):,} bytes of HTML>"

    def _repr_html_(self) -> str:
        style = "width:100%;height:640px;border:1px solid #8888"
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{escape(self.html)}"></iframe>'

    def save(self, path: str | Path) -> Path:
        """Writes the page.

        Parameters
        ----------
        path : str or Path
            The file.

        Returns
        -------
        Path
            The file.
        """
        path = Path(path)
        path.write_text(self.html, encoding="utf-8")
        return path


def page(data: dict[str, Any], *, connects: bool = False) -> View:
    """The page of what `PageData.json` gives. `connects`: it may ask the server that it comes from."""
    title = str(data["title"])
    block = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False).replace("<", "\\u003c")
    scripts = [_asset("dagre.min.js"), _asset("viewer.js")]
    style = _asset("viewer.css")
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_hash, scripts))}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'" + ("; connect-src 'self'" if connects else "")
    )
    html = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(shown(title))}</title>\n<style>{style}</style>\n</head>\n<body>\n{_asset('viewer.html')}\n"
        f'<script type="application/json" id="data">{block}</script>\n'
        + "".join(f"<script>{script}</script>\n" for script in scripts)
        + "</body>\n</html>\n"
    )
    return View(title, html)


def shown(text: str) -> str:
    """Characters that do not show, or turn the direction of writing, as their codes."""
    return "".join(c if c.isprintable() or c == "\n" else f"\\u{ord(c):04x}" for c in text)


@cache
def _asset(name: str) -> str:
    return files("hlokit.view").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
