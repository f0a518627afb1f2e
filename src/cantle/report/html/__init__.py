"""One page, all in one file, that shows how a run went or would go. Loaded for `cantle report` and `cantle plan --html`."""
