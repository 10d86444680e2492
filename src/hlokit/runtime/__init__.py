"""What runs compiled programs: executables, arena, threads, cache."""
