"""Names that pose as others: hosts in mixed alphabets, and look-alikes of domains and addresses that a person knows."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Final

from postroom.core.lookalike import skeleton
from postroom.review.links import readable, site
from postroom.review.tables import words

if TYPE_CHECKING:
    from collections.abc import Iterable


def host_skeleton(text: str) -> str:
    """Return what a host is taken for at a glance, the same for all that look alike."""
    return skeleton(readable(text))


def scripts(word: str) -> set[str]:
    """Return those scripts of a word whose letters look alike."""
    letters = "a" if word.isascii() else filter(str.isalpha, word[:255])
    return {unicodedata.name(char, "").partition(" ")[0] for char in letters} & words(
        "confusable_scripts"
    )


def is_spoofed(host: str) -> bool:
    """Whether a label mixes scripts, or reads as ASCII in another script under an ASCII ending."""
    labels = readable(host).split(".")
    foreign = [label for label in labels if scripts(label) - {"LATIN"}]
    return any(
        len(scripts(label)) > 1 or (labels[-1].isascii() and host_skeleton(label).isascii())
        for label in foreign
    )


def _one_edit(one: str, other: str) -> bool:
    """Whether at most one character is left out, added, changed, or swapped with the next."""
    if abs(len(one) - len(other)) > 1:
        return False
    pairs = enumerate(zip(one, other, strict=False))
    at = next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
    one, other = one[at:], other[at:]
    swapped = one[:2] == other[:2][::-1] and one[2:] == other[2:]
    return swapped or one[1:] == other[1:] or one[1:] == other or one == other[1:]


class Known:
    """Domains and addresses that a person knows, and what can be taken for one of them."""

    def __init__(self, domains: Iterable[str], addresses: Iterable[str] = ()) -> None:
        self.sites = {site(domain.casefold()) for domain in domains if "." in domain}
        looks = [(known, host_skeleton(known)) for known in sorted(self.sites)]
        self._looks = [(known, look, *_joined(look)) for known, look in looks]
        self._people = [
            (known, *_mailbox(known)) for known in sorted(addresses) if known[:1] != "@"
        ]

    def imitated(self, address: str) -> str:
        """Return the known address that another one is taken for: it differs by how it is spelled."""
        name, look, domain = _mailbox(address)
        found = ""
        for known, its_name, its_look, its_domain in self._people:
            if (its_name, its_domain) == (name, domain):
                return ""
            public = {domain, its_domain} <= words("public_mail") and len(look) > 5
            near = look == its_look or (public and _one_edit(look, its_look))
            if near and (domain == its_domain or (public and look == its_look)):
                found = known
        return found

    def lookalike_of(self, host: str) -> tuple[str, bool]:
        """Return the known domain that a host is taken for, and whether more than its ending is alike."""
        mine = site(host.casefold())
        if mine in self.sites or mine in words("public_mail"):
            return "", False
        near, (pieces, flat), ending = host_skeleton(mine), _joined(host_skeleton(host)), ""
        for known, look, inner, whole in self._looks:
            if host.casefold().endswith(f".{known}"):
                return "", False
            if inner in pieces or whole == flat or _one_edit(mine, known) or _one_edit(near, look):
                return known, True
            if near.partition(".")[0] == look.partition(".")[0]:
                ending = ending or known
        return ending, False


def _mailbox(address: str) -> tuple[str, str, str]:
    """Return the local part without its `+tag`, what that is taken for, and the domain."""
    local, _, domain = address.rpartition("@")
    name = local.partition("+")[0]
    return name, host_skeleton(name).translate(_SEPARATORS), domain


def _joined(look: str) -> tuple[str, str]:
    """Return a domain with dots for its hyphens, and without either."""
    return f".{look.replace('-', '.')}.", look.replace("-", "").replace(".", "")


_SEPARATORS: Final = str.maketrans("", "", ".-_")
