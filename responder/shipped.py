"""Where the files that come with the project are: beside the package in a checkout, else under share/."""

import sys
from pathlib import Path

from responder.errors import ConfigError

_ROOTS = (Path(__file__).resolve().parent.parent, Path(sys.prefix) / "share" / "gpu-responder")


def shipped(*parts: str) -> Path:
    """A shipped file or directory, such as `shipped("rules")`. Raises ConfigError when it is not there."""
    for root in _ROOTS:
        path = root.joinpath(*parts)
        if path.exists():
            return path
    name = "/".join(parts)
    raise ConfigError(f"{name}: not found beside the installed package; install gpu-responder again.")
