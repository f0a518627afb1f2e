"""How does a Python program use a pilot? Its functions as tasks, futures for what they return; `cantle` exports the names."""
