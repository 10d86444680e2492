"""Lowering forms: the information about an op that a backend needs. They import only types (docs/add_a_form.md)."""
