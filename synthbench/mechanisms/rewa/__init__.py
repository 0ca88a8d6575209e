"""REWA: attention by overlap or distance of witnesses, images of queries and keys in a geometric or other space."""
