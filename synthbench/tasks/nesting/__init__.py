"""Nesting tasks: brackets, stacks and trees."""
