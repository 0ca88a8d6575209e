"""Hops: find an earlier occurrence and go on from there, once or many times."""
