"""What differs between pictures and texts: leaf, reduce, units, delete, windows, layout."""
