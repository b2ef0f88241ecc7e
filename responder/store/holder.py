"""The name under which a process holds a lease, and whether the process behind a name is gone."""

import os
import socket


def this_process() -> str:
    """`host/pid/start time`: no other process, earlier or later, on any host, has this name."""
    pid = os.getpid()
    return f"{_host()}/{pid}/{_started_at(pid)}"


def is_dead(holder: str) -> bool:
    """True when the holder was a process of this host that is no more. Of other hosts nothing is known."""
    host, _, rest = holder.rpartition("/")
    host, _, pid = host.rpartition("/")
    if host != _host() or not pid.isdigit():
        return False
    return _started_at(int(pid)) != rest


def _host() -> str:
    # Process ids mean something within one pid namespace only: containers may share a name.
    return f"{socket.gethostname()}:{os.stat('/proc/self/ns/pid').st_ino}"


def _started_at(pid: int) -> str:
    """In clock ticks since the host started; empty when there is no such process, or only its remains."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            # The second field is the name in brackets, and may hold anything.
            fields = stat.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in ("Z", "X") else fields[19]
