"""The agent: a loop of turns in a workspace, its tools, its record."""
