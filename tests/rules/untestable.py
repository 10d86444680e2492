"""Rules that no test names, each with the reason."""

UNTESTABLE: dict[str, str] = {
    "GRP-8": "takes several devices; the interpreter runs one for now",
    "WHILE-7": "a loop without end has no end to test",
}
