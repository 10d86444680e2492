"""Judging programs and engines: differences of modules, the least program that shows a fault, and who is right."""
