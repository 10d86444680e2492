"""The devices of a run in processes under MPI.

hub.py      the control plane's centre, a thread of rank 0: who waits for whom
line.py     a rank's end of it
packing.py  values as bytes and headers
mover.py    the data plane: what of MPI carries arrays
collective.py  a collective, by the mover
guard.py    keeps mpirun from ending a job before it has said what is wrong
world.py    World: all of it, as a transport
"""
