"""SLAY, attention by positive random features for the spherical Yat kernel, and its variants."""
