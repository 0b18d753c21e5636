"""What a model gets to read."""
