"""The small process on each node that starts and reaps that node's processes."""
