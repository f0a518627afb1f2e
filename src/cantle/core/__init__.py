"""What shall be done: pure. Records in, decisions out; no clock, no dice, no waiting."""
