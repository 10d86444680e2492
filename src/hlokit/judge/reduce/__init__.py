"""Reducing a program to the least that still shows a fault."""
