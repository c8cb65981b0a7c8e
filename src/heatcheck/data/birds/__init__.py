"""Birds that are drawn here: 50 classes by their parts, whose places and absence are known exactly."""
