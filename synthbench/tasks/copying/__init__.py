"""Copying tasks: write what was read, in the same or in another order."""
