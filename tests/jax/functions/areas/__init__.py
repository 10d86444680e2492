"""Tables of cases: each module has CASES."""
