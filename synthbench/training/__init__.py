"""Training of a mechanism on a task: model, data, optimiser and evaluation, without a store or worker processes."""
