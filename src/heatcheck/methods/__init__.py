"""Attribution methods: one published method or family per file."""
