"""From forms to loops: expression DAGs over axes, and the loop order, vector axis and chunks of each kernel."""
