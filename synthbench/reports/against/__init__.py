"""Comparisons of reports with published tables, other suites and predictions of the literature."""
