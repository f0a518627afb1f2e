"""How is a Python function called on a node? By a worker that lives longer than the call; the runner has one for each place."""
