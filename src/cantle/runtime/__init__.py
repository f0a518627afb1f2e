"""The loop, and the worlds in which it turns."""
