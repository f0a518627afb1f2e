"""How do several studies share one allocation? A long-lived conductor, its door, and a run's directory for each study."""
