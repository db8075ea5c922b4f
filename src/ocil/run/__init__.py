"""A run: the loop over a stream, its evaluations, metrics, checkpoints and record."""
