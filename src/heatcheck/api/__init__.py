"""The verbs: benchmark, explain and score, study, result, multiverse, doctor."""
