"""The service itself: ready, with the policy file that was checked, and what it says is amiss."""

from collections.abc import Iterator

from responder.check.doctor.servers import Server, Unanswered
from responder.check.findings import Finding, error, warning

_SAID = {
    "policy": (
        "The policy file as it is now is not in force",
        "mend the file; gpu-responder check finds its faults",
    ),
    "tokens": ("The file of tokens as it is now is not in force", "mend the file"),
    "safeMode": (
        "Scale-down is held",
        "bring the heartbeat back: see docs/runbooks/GPUResponderHeartbeatLost.md",
    ),
}


def check(server: Server) -> Iterator[Finding]:
    """What /-/ready tells; a service that is not ready is an error."""
    try:
        body = server.json("/-/ready")
        details = dict(body.get("details") or {})
    except Unanswered as problem:
        said = f"{server.name} {problem}."
        mend = "check --url and that gpu-responder serve runs there; its log says more"
        yield error(server.place, 0, "unreachable", said, mend)
        return
    except (AttributeError, TypeError, ValueError):
        said = f"{server.name} does not answer /-/ready as gpu-responder does."
        yield error(server.place, 0, "unreachable", said, "check --url")
        return
    for key, detail in sorted(details.items()):
        what, mend = _SAID.get(key, (key, "see its log"))
        text = str(detail).rstrip(".")
        yield warning(server.place, 0, "not-well", f"{what}: {text}.", mend)
