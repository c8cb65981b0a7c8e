"""Networks that explain themselves, or that have no biases; tensors are named and shaped as their authors' are."""
