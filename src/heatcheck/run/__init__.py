"""Computing what is missing of a run, chunk by chunk, into one folder."""
