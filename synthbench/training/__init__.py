"""Training of a cell: model, data, optimiser and evaluation. It uses neither the store nor worker processes."""
