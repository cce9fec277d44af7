"""What the contract `dry-run` accepts: sections 11 and 13 of its document. What is too long is cut, with a warning."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Final

from postroom.core.address import Address
from postroom.core.errors import Invalid
from postroom.core.mail_view import cut
from postroom.core.outgoing_html import reduce_html
from postroom.core.text import words
from postroom.desk.compose import Written

if TYPE_CHECKING:
    from postroom.tools import models

MAX_SUBJECT, MAX_BODY = 500, 50_000  # section 11B: what is longer is cut
MAX_ADDRESS, MAX_LOCAL = 254, 64  # section 11A: shorter than these
MAX_PEOPLE: Final = 200  # far more than any limit lets through
# A tag, its end, a comment or a processing instruction; <ann@example.com> and <https://…> are none.
_NAME: Final = "[A-Za-z][A-Za-z0-9-]*(?::[A-Za-z][A-Za-z0-9-]*)?"
_TAG: Final = re.compile(rf"<{_NAME}(?:[\s/][^<>]*)?>|</[A-Za-z]|<[!?]")


class BadAddress(Invalid):
    """An address that section 11A refuses; `field` is the argument that has it."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(why)
        self.field = field


def check_letter(args: models.DraftEmail) -> tuple[Written, tuple[str, ...]]:
    """Return the letter that `draft_email` or `send_email` is called for, and warnings of what was changed."""
    to = validate_email_address(args.to, "to")
    cc, bcc = (validate_recipient_list(getattr(args, name), name) for name in ("cc", "bcc"))
    given = getattr(args, "reply_to", "")
    reply_to = (validate_email_address(given, "reply_to"),) if given else ()
    subject, cut_subject = validate_subject(args.subject)
    text, page, warnings = validate_texts(args.body, args.html_body)
    written = Written((to,), subject, text, cc, bcc, page, reply_to=reply_to)
    return written, tuple(filter(None, [cut_subject, *warnings]))


def validate_email_address(text: str, field: str) -> Address:
    """Return one address without a name, or refuse it."""
    try:
        address = Address.parse(text)
    except Invalid as why:
        raise BadAddress(field, why.message) from None
    # What names an address literally, a host or a machine of its own, `Address` has refused.
    if "<" in text or len(address.spec) >= MAX_ADDRESS or len(address.local) >= MAX_LOCAL:
        raise BadAddress(field, f"Invalid email address format: {cut(text, 100)}")
    return address


def validate_recipient_list(csv: str, field: str) -> tuple[Address, ...]:
    """Return the addresses of a comma-separated list; one that is invalid refuses all."""
    items = [item.strip() for item in csv.split(",", MAX_PEOPLE)] if csv.strip() else []
    if len(items) > MAX_PEOPLE:
        raise Invalid(f"{field} names more than {MAX_PEOPLE} addresses")
    addresses = [validate_email_address(item, field) for item in items]
    return tuple({address.key: address for address in addresses}.values())


def validate_subject(subject: str) -> tuple[str, str]:
    """Return the subject trimmed, without null bytes and cut, and the warning if it was cut."""
    plain = subject.replace("\0", "").strip()
    if not plain:
        raise Invalid("subject is empty")
    if len(plain) <= MAX_SUBJECT:
        return plain, ""
    return f"{plain[: MAX_SUBJECT - 3]}...", f"subject truncated to {MAX_SUBJECT} characters"


def validate_texts(body: str, page: str) -> tuple[str, str, tuple[str, ...]]:
    """Return the plain text, the HTML, and the warnings about both."""
    text, warnings = validate_body(body)
    reduced, left_out = validate_html(page, text)
    return text, reduced, tuple(filter(None, [*warnings, left_out]))


def validate_body(body: str) -> tuple[str, list[str]]:
    """Return the body without null bytes, HTML in it escaped (section 13), and cut; and the warnings."""
    plain = body.replace("\0", "").replace("\r\n", "\n").replace("\r", "\n")
    warnings = []
    if _TAG.search(plain):
        plain = html.escape(plain, quote=False)
        warnings.append("HTML in body was escaped; use html_body for HTML")
    if len(plain) > MAX_BODY:
        is_escaped, plain = bool(warnings), plain[:MAX_BODY]
        if is_escaped:  # what was escaped is not cut in two
            plain = re.sub("&[a-z]{0,3}$", "", plain)
        warnings.append(f"body truncated to {MAX_BODY} characters")
    if not plain.strip():
        raise Invalid("body is empty")
    return plain, warnings


def validate_html(page: str, body: str) -> tuple[str, str]:
    """Return the HTML if it says what the body says; else nothing, and the warning."""
    if not page.strip():
        return "", ""
    try:
        reduced, text, plain = reduce_html(page)
    except Invalid as why:
        return "", f"html_body was left out. {why.message_with_remedy.rstrip('.')}"
    # The body may name where the links lead, or not: the plain text that is sent always does.
    if words(body) in (words(plain), words(text)):
        return reduced, ""
    return "", "html_body was left out: its words are not those of body"
