"""Training one cell: the model, its data, the optimiser and the evaluation. Knows no store and no process."""
