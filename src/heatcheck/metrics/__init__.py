"""Metrics: pure functions in curves.py, then one metric per file."""
