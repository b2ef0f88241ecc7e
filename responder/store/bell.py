"""How a process of this host wakes the one that acts: a datagram to a socket beside the database."""

import contextlib
import hashlib
import os
import select
import socket
from pathlib import Path

from responder.errors import StoreUnavailable

# Of sockaddr_un.sun_path, less its closing NUL.
_LONGEST_NAME = 107


class Bell:
    """Rung by any process of the host; heard by the one that took `hold` of it last."""

    def __init__(self, path: Path) -> None:
        self._folder = path.parent
        self._name = f"{path.name}.wake"
        self._own = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sender.setblocking(False)
        self._heard: socket.socket | None = None
        self._inode = 0
        self._folder_fd = -1

    def hold(self) -> None:
        """Be the one that is woken. Taken again if another process has taken it since."""
        if self._heard is not None and self._inode == self._bound_inode():
            return
        heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        heard.setblocking(False)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._address())
        heard.bind(self._address())
        if self._heard is not None:
            self._heard.close()
        self._heard = heard
        self._inode = self._bound_inode()

    def ring(self) -> None:
        """Wake whoever waits; nobody there is no error, for who comes looks before it waits."""
        if self._own >= 0:
            os.eventfd_write(self._own, 1)
        # Full is as good as rung, and a folder that cannot be written to has no bell.
        with contextlib.suppress(OSError):
            self._sender.sendto(b"\0", self._address())

    def wait(self, timeout: float) -> bool:
        """True as soon as it is rung, False after `timeout` seconds. Raises StoreUnavailable when closed."""
        if self._own < 0:
            raise StoreUnavailable("the store is closed: the service is stopping")
        poll = select.poll()
        poll.register(self._own, select.POLLIN)
        if self._heard is not None:
            poll.register(self._heard, select.POLLIN)
        rung = bool(poll.poll(max(timeout, 0) * 1000))
        self._silence()
        return rung

    def close(self) -> None:
        """Let go of it; the name goes with it if it is still ours."""
        if self._heard is not None:
            if self._inode == self._bound_inode():
                with contextlib.suppress(OSError):
                    os.unlink(self._address())
            self._heard.close()
            self._heard = None
        self._sender.close()
        for fd in (self._own, self._folder_fd):
            if fd >= 0:
                os.close(fd)
        self._own = self._folder_fd = -1

    def _silence(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._own)
        if self._heard is not None:
            with contextlib.suppress(BlockingIOError):
                while True:
                    self._heard.recv(1)

    def _bound_inode(self) -> int:
        try:
            return os.stat(self._address()).st_ino
        except OSError:
            return 0

    def _address(self) -> str:
        """A socket's name is short and a folder's need not be: name it by an open descriptor then."""
        name = self._name
        address = str(self._folder / name)
        if len(os.fsencode(address)) <= _LONGEST_NAME:
            return address
        if self._folder_fd < 0:
            self._folder_fd = os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        if len(os.fsencode(name)) > 60:
            name = f".{hashlib.sha256(os.fsencode(name)).hexdigest()[:32]}.wake"
        return f"/proc/self/fd/{self._folder_fd}/{name}"
