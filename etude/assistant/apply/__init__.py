"""Merge a rough sketch into a file."""
