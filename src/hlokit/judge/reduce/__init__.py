"""Reducing a program to the smallest one that still shows a fault."""
