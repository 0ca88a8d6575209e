"""Plans what is missing, trains it, and writes rows."""
