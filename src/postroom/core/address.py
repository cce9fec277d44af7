"""An address that mail may be sent to: parsed once, strictly, and the same after every round trip."""

from __future__ import annotations

import re

from postroom.core.errors import Invalid
from postroom.core.text import clean
from postroom.core.values import dataclass

MAX_LIST = 100_000  # characters of an address list that are looked at
MAX_ONE = 1_000  # characters of one address with its name

_ATEXT = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
_PLAIN_NAME = re.compile(rf"{_ATEXT}+(?: {_ATEXT}+)*")
_ANGLED = re.compile(r'(?:"((?:[^"\\]|\\.)*+)"|([^"<>@,;:\\()\[\]]*+))\s*+<([^<>]*+)>')
# Some readers decode the first, and some relays pass mail on by the others.
_ROUTED = re.compile(r"=\?|[%!]")
_ADDRESS_LIKE = re.compile("[@＠﹫<>]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """A mailbox that can be written to: display name, local part, domain in its ASCII form."""

    local: str
    domain: str
    name: str = ""

    @classmethod
    def parse(cls, text: str) -> Address:
        """Return the one address in `name <local@domain>` or `local@domain`, or raise `Invalid`."""
        if len(text) > MAX_ONE:
            raise _invalid(text, f"it is longer than {MAX_ONE:,} characters")
        if _CONTROL.search(text):
            raise _invalid(text, "it holds a line break or a control character")
        angled = _ANGLED.fullmatch(text.strip())
        if angled:
            quoted, plain, spec = angled.groups()
            name = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else plain.strip()
        else:
            name, spec = "", text.strip()
        local, domain = _parse_spec(spec, text)
        address = cls(local, domain, _checked_name(name, text))
        from email.utils import getaddresses  # half of the start-up, and only senders need it

        # The two-way cases: refuse what another reader would take for another address.
        if getaddresses([str(address)]) != [(address.name, address.spec)]:
            raise _invalid(text, "it can be read in two ways")
        return address

    @classmethod
    def parse_list(cls, text: str) -> tuple[Address, ...]:
        """Return the addresses of a comma-separated list, each once; one bad address refuses the list."""
        if len(text) > MAX_LIST:
            raise Invalid("The list of addresses is too long", remedy="Write to fewer people.")
        found: dict[str, Address] = {}
        for item in _split(text):
            if item.strip():
                address = cls.parse(item)
                found.setdefault(address.key, address)
        return tuple(found.values())

    @property
    def spec(self) -> str:
        """`local@domain`, as it goes on the wire."""
        return f"{self.local}@{self.domain}"

    @property
    def key(self) -> str:
        """What tells two mailboxes apart, whatever their case."""
        return self.spec.casefold()

    def __str__(self) -> str:
        if not self.name:
            return self.spec
        if _PLAIN_NAME.fullmatch(self.name):
            return f"{self.name} <{self.spec}>"
        escaped = self.name.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}" <{self.spec}>'


def _invalid(text: str, why: str) -> Invalid:
    shown = clean(text[:80]).text.replace("\n", " ")
    return Invalid(
        f"Invalid email address format: {shown}",
        remedy=f"{why[0].upper()}{why[1:]}. Write it as name@example.org.",
    )


def _split(text: str) -> list[str]:
    """Split at commas outside quotes, in one pass."""
    items, start, quoted, escaped = [], 0, False, False
    for at, char in enumerate(text):
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        elif char == '"':
            quoted = not quoted
        elif char == "," and not quoted:
            items.append(text[start:at])
            start = at + 1
    items.append(text[start:])
    return items


def _parse_spec(spec: str, text: str) -> tuple[str, str]:
    # Imported where it is used: it brings idna's tables, and reading mail needs neither.
    from email_validator import EmailNotValidError, validate_email

    if not spec.isprintable() or spec != spec.strip():
        raise _invalid(text, "it holds characters that no address has")
    if _ROUTED.search(spec):
        raise _invalid(text, "`=?`, `%` and `!` mean other addresses to some servers")
    try:
        valid = validate_email(spec, check_deliverability=False, allow_smtputf8=False, strict=True)
    except EmailNotValidError as why:
        raise _invalid(text, str(why).rstrip(".")) from None
    local, domain = valid.ascii_local_part, valid.ascii_domain
    if local is None or "." not in domain:
        raise _invalid(text, "the domain needs a dot")
    return local, domain


def _checked_name(name: str, text: str) -> str:
    if name != clean(name).text:
        raise _invalid(text, "the name holds invisible characters")
    if _ADDRESS_LIKE.search(name):
        raise _invalid(text, "the name looks like an address of its own")
    if len(name) > 256:
        raise _invalid(text, "the name is longer than 256 characters")
    return " ".join(name.split())
