"""Analyses of modules: cost, loops, ranges, whether devices meet, and a simulation of their collectives."""
