"""Algorithm tasks: sort, add, count, compare, continue and look around."""
