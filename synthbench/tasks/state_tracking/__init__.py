"""State-tracking tasks: every token moves a state, and the state is asked."""
