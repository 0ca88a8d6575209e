"""State-tracking tasks: every token changes a state, and the answer is the state."""
