"""Lowering forms: what a backend must know of an op. Forms import types and nothing else; see docs/add_a_form.md."""
