"""Result rows made by others: audit, bundles, verification, submission and merging."""
