"""Plan, probe, identity, store and executors."""
