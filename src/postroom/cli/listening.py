"""Where a server of ours listens: on this machine, unless the person names another address."""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import NamedTuple

from postroom.core.errors import Invalid, Unavailable


class Place(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    @property
    def shown(self) -> str:
        """The host as it stands in an address."""
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def place(text: str) -> Place:
    """Return what `[HOST:]PORT` means; without a host, this machine alone."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65_535:
        raise Invalid(
            "--http needs a port, as in 8765 or 127.0.0.1:8765", remedy="0 takes a free one."
        )
    return Place(host, int(port))


def listening(where: Place, option: str) -> socket.socket:
    """Return a socket that listens there; never on all addresses of the machine at once."""
    family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
    # Named as TCP: asyncio then sends the end of an answer without waiting for the other side's word.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((where.host, where.port))
        if ipaddress.ip_address(listener.getsockname()[0]).is_unspecified:
            raise Invalid(
                f"{option} on all addresses would let anybody in who finds this machine",
                remedy="Name the one address that is used, and put TLS in front of it.",
            )
        listener.listen(128)  # before we say that we serve
    except Invalid:
        listener.close()
        raise
    except socket.gaierror as why:
        listener.close()
        raise Invalid(
            f"{where.host[:60]} is no address of this machine", remedy="Give one such as 127.0.0.1."
        ) from why
    except OSError as why:
        listener.close()
        raise Unavailable(
            f"{where.shown}:{where.port} cannot be listened on: {why.strerror}",
            remedy="Name another port; 0 takes a free one.",
        ) from why
    return listener
