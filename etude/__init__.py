"""etude: an open, self-hosted coding assistant, and the practice that trains its model."""

__version__ = "0.1.0"
