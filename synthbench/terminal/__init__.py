"""What a person sees in a terminal: facts, drawn examples, progress, diagnoses."""
