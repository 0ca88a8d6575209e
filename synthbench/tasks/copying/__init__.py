"""Copying tasks: write the tokens read, in the same or in another order."""
