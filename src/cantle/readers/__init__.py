"""From a file, or from values on the command line, to a study."""
