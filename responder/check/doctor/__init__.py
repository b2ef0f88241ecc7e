"""`gpu-responder doctor`: what only the running parts can tell."""
