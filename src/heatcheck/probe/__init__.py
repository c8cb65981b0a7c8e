"""The only road to a model."""
