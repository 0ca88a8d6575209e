"""Training of a cell: model, data, optimiser and evaluation, without a store or worker processes."""
