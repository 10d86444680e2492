"""The devices of a run in several processes.

hub.py      the control plane's centre, a thread of rank 0: who waits for whom
line.py     a rank's end of it
packing.py  values as bytes and headers
engine.py   the data plane: what an engine is, that carries arrays; mpi.py, gloo.py: the two there are
engines.py  which of them it is
store.py    values by name, by which processes find each other
collective.py  a collective, by an engine
guard.py    keeps mpirun from ending a job before it has said what is wrong
world.py    World: all of it, as a transport
"""
