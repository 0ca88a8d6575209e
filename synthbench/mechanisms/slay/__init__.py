"""SLAY: spherical Yat-kernel attention by positive random features, and its variants."""
