"""Rows made by others: audit, bundles, verification, submission and merging."""
