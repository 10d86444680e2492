"""Runs on several devices: as threads of this process, or as processes under MPI."""
