"""Analyses of modules: cost, loops, ranges, deadlocks of devices, and a simulation of their collectives."""
