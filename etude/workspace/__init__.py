"""Where a model reads, writes and runs."""
