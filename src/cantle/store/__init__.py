"""What has happened, on disk: the journal, the lock that guards it, and the wishes of other processes."""
