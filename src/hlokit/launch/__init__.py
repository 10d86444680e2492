"""Launch: the processes of a job on this machine, as `python -m hlokit.launch -n 4 -- python train.py` starts them.

launcher.py   starts them, prints their output with their numbers, ends them together
worker.py     stands between mpirun and a process: a script that imports nothing of hlokit
"""
