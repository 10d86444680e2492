"""Plays the golden cases recorded from real XLA (see README.md of their folder) through hlokit.

cases.py reads them, player.py turns a case's program into calls of hlokit's builder by the table in calls.py,
compare.py holds the tolerance classes, check.py judges one case, run.py is the command, sample.py picks the
bundled sample, programs.py does the whole JAX programs.
"""
