"""Training: what turns a backbone into a classifier whose explanations can be judged."""
