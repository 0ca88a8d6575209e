"""Hop tasks: find an earlier occurrence of a token and go on from there, once or many times."""
