"""`python -m responder` is `gpu-responder`."""

from responder.cli import main

main()
