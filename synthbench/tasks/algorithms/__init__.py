"""Algorithm tasks: sort, add, count, compare, continue patterns and find neighbours."""
