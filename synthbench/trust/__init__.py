"""Rows that others have made: what can be proved of them, bundles, verification, submission and merging."""
