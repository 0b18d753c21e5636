"""The assistant over a wire."""
