"""What an editor asks for."""
