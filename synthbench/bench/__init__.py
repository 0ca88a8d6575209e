"""Measurements of speed; nothing is trained to an end."""
