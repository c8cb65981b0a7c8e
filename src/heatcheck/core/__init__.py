"""Types and tools that import nothing else of heatcheck."""
