"""Where chunks are computed: in this process, or in others."""
