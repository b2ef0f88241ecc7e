"""The parts of `decide`: what triggers ask for, what damps it, what people said, and when to look again. Pure."""
