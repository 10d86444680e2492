"""Files of programs: which kind one is, by its content, and the program in it."""
