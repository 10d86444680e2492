"""Rules that no test names, each with the reason."""

UNTESTABLE: dict[str, str] = {
    "TYPE-11": "leaves denormal results open and asks tests not to pin them",
    "LAYOUT-6": "padded layouts are history: shapes of today have none",
    "BITCAST-5": "the widths of element types are powers of two: each is a multiple of the narrower ones",
}
