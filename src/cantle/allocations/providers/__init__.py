"""Who brings further nodes while a run goes on, and takes them back."""
