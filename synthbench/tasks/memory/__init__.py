"""Memory tasks: store tokens and recall them."""
