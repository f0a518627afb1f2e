"""How is a program of several ranks started across the nodes of a step? One module for each way, and what they share."""
