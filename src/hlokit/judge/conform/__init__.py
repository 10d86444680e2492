"""Conformance: recorded programs with the values that the rules of the language give, and a report by rule."""
