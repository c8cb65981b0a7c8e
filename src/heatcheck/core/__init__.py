"""Nouns and tools that know nobody else in the house."""
