"""What a task turns into: one module an engine."""
