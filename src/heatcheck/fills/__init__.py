"""What replaces a deleted unit."""
