import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from generate import write_reference

project = "hlokit"
author = "The hlokit authors"
extensions = ["myst_parser"]
html_theme = "furo"

write_reference()
