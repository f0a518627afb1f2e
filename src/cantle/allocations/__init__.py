"""Where nodes come from: one module a source."""
