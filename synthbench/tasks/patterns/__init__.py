"""Pattern tasks: counts, fixed maps and other regularities of the tokens read."""
