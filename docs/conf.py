project = "hlokit"
author = "The hlokit authors"
extensions = ["myst_parser"]
html_theme = "furo"
