"""Where a server listens: on this machine, unless the person names another address."""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import NamedTuple

from postroom.core.errors import Invalid, PostroomError, Unavailable


class ListenAddress(NamedTuple):
    """The host and port that a server listens on."""

    host: str
    port: int

    @property
    def url_host(self) -> str:
        """The host as a URL has it."""
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_address(text: str) -> ListenAddress:
    """Return what `[HOST:]PORT` means; without a host it is the loopback address."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65_535:
        raise Invalid(
            "--http needs a port, as in 8765 or 127.0.0.1:8765", remedy="0 takes a free one."
        )
    return ListenAddress(host, int(port))


def listen(where: ListenAddress, option: str) -> socket.socket:
    """Return a listening socket; refuse to listen on all addresses of the machine at once.

    `option` is the one that the person gave the address with, for the message.
    """
    family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
    # Named as TCP: asyncio then sends the end of an answer without waiting for an acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((where.host, where.port))
        if ipaddress.ip_address(listener.getsockname()[0]).is_unspecified:
            raise Invalid(
                f"{option} on all addresses would let in anybody who finds this machine",
                remedy="Name the one address that is used, and put TLS in front of it.",
            )
        listener.listen(128)  # before the address is printed
    except (OSError, Invalid) as why:
        listener.close()
        raise _explain(where, why) from why
    return listener


def _explain(where: ListenAddress, why: OSError | PostroomError) -> PostroomError:
    if isinstance(why, PostroomError):
        return why
    if isinstance(why, socket.gaierror):
        problem = f"{where.host[:60]} is no address of this machine"
        return Invalid(problem, remedy="Give one such as 127.0.0.1.")
    return Unavailable(
        f"Cannot listen on {where.url_host}:{where.port}: {why.strerror}",
        remedy="Name another port; 0 takes a free one.",
    )
