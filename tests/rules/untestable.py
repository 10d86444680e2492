"""Rules that no test names, each with the reason."""

UNTESTABLE: dict[str, str] = {}
