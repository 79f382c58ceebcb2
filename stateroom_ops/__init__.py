"""The operator's tools: the `stateroom` command, local groups, replay, demo."""
