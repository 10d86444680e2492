"""Sort and top-k: by any comparator, by digits, by vectors."""
