"""What keeps the measurements from being made, in one sentence."""


class BenchError(Exception):
    """Told to the one who started it."""
