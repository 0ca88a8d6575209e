"""Pattern tasks: statistics and regularities of the tokens read."""
