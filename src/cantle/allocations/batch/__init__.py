"""Nodes from inside a batch job: which ones the job has, and how the batch system's own starter puts a runner on each.

`systems.py` asks each system in turn; one module a system knows its variables and its starter; `source.py` starts them.
"""
