"""Fetches the layout library that the viewer's page has in it: python -m tests.view.bundle [--check]."""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ASSETS = Path(__file__).parents[2] / "src/hlokit/view/assets"
PACKAGE = "node-dagre-layout=0.8.8+really0.8.5+dfsg-6"


def recorded() -> str:
    """The checksum in the licence file."""
    found = re.search(r"SHA-256: ([0-9a-f]{64})", (ASSETS / "dagre.LICENSE").read_text(encoding="utf-8"))
    assert found is not None
    return found[1]


def fetched(folder: Path) -> bytes:
    """The file out of Debian's package; its licence must still be what the licence file says."""
    subprocess.run(["apt-get", "download", PACKAGE], cwd=folder, check=True)
    (package,) = folder.glob("*.deb")
    subprocess.run(["dpkg", "-x", package, "unpacked"], cwd=folder, check=True)
    assert "License: Expat" in (folder / "unpacked/usr/share/doc/node-dagre-layout/copyright").read_text(encoding="utf-8")
    return (folder / "unpacked/usr/share/nodejs/dagre/dist/dagre.min.js").read_bytes()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare alone")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        content = fetched(Path(folder))
    if hashlib.sha256(content).hexdigest() != recorded():
        print("the package's file has another checksum than the licence file says")
        return 1
    if not given.check:
        (ASSETS / "dagre.min.js").write_bytes(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
