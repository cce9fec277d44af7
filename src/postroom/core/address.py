"""An address that mail may be sent to: parsed once, strictly, and the same after every round trip."""

from __future__ import annotations

import re

from postroom.core.errors import Invalid, raise_if
from postroom.core.text import clean
from postroom.core.values import dataclass

MAX_LIST = 100_000  # characters of an address list that are looked at
MAX_ONE = 1_000  # characters of one address with its name
MAX_NAME = 256

_PLAIN_NAME = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?: [A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
_ANGLED = r'(?:"((?:[^"\\]|\\.)*+)"|([^"<>@,;:\\()\[\]]*+))\s*+<([^<>]*+)>'
# What stands between commas, but for those in quotes or after a backslash.
_ITEM = re.compile(r'(?:[^,"\\]|\\.?|"(?:[^"\\]|\\.?)*+"?)++', re.DOTALL)
# Some readers decode the first, and some relays pass mail on by the others.
_ROUTED = r"=\?|[%!]"
_CONTROL = r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]"


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """A mailbox that can be written to: display name, local part, domain in its ASCII form."""

    local: str
    domain: str
    name: str = ""

    @classmethod
    def parse(cls, text: str) -> Address:
        """Return the one address in `name <local@domain>` or `local@domain`, or raise `Invalid`."""
        _check(
            text,
            (len(text) > MAX_ONE, f"it is longer than {MAX_ONE:,} characters"),
            (re.search(_CONTROL, text), "it holds a line break or a control character"),
        )
        name, spec = "", text.strip()
        if angled := re.fullmatch(_ANGLED, spec):
            quoted, plain, spec = angled.groups()
            name = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else plain.strip()
        local, domain = _parse_spec(spec, text)
        _check(
            text,
            (name != clean(name).text, "the name holds invisible characters"),
            (re.search("[@＠﹫<>]", name), "the name looks like an address of its own"),
            (len(name) > MAX_NAME, f"the name is longer than {MAX_NAME} characters"),
        )
        address = cls(local, domain, " ".join(name.split()))
        from email.utils import getaddresses  # half of the start-up, and only senders need it

        # Refuse what another reader would take for another address.
        read_back = getaddresses([str(address)])
        _check(text, (read_back != [(address.name, address.spec)], "it can be read in two ways"))
        return address

    @classmethod
    def parse_list(cls, text: str) -> tuple[Address, ...]:
        """Return the addresses of a comma-separated list, each once; one bad address refuses the list."""
        if len(text) > MAX_LIST:
            raise Invalid("The list of addresses is too long", remedy="Write to fewer people.")
        found: dict[str, Address] = {}
        for item in _ITEM.findall(text):
            if item.strip():
                address = cls.parse(item)
                found.setdefault(address.key, address)
        return tuple(found.values())

    @property
    def spec(self) -> str:
        return f"{self.local}@{self.domain}"

    @property
    def key(self) -> str:
        """What tells two mailboxes apart, whatever their case."""
        return self.spec.casefold()

    def __str__(self) -> str:
        if not self.name:
            return self.spec
        if re.fullmatch(_PLAIN_NAME, self.name):
            return f"{self.name} <{self.spec}>"
        escaped = self.name.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}" <{self.spec}>'


def _check(text: str, *faults: tuple[object, str]) -> None:
    message = f"Invalid email address format: {clean(text[:80]).text}".replace("\n", " ")
    form = "Write it as name@example.org."
    raise_if(*((is_so, message, f"{why[0].upper()}{why[1:]}. {form}") for is_so, why in faults))


def _parse_spec(spec: str, text: str) -> tuple[str, str]:
    # Imported where it is used: it brings idna's tables, and reading mail needs neither.
    from email_validator import EmailNotValidError, validate_email

    _check(
        text,
        (not spec.isprintable() or spec != spec.strip(), "it holds characters that no address has"),
        (re.search(_ROUTED, spec), "`=?`, `%` and `!` mean other addresses to some servers"),
    )
    local, domain, why = "", "", "the domain needs a dot"
    try:
        valid = validate_email(spec, check_deliverability=False, allow_smtputf8=False, strict=True)
        local, domain = valid.ascii_local_part or "", valid.ascii_domain
    except EmailNotValidError as error:
        why = str(error).rstrip(".")
    _check(text, (not local or "." not in domain, why))
    return local, domain
