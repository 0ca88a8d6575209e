"""Memory tasks: storing tokens and recalling them."""
