"""The risk card: what a person should see of a letter before approving it, found by code alone."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain, islice
from typing import Final

from postroom.core.address import Address
from postroom.core.letter import Enclosure, Letter
from postroom.core.records import (
    FILE,
    MAX_CARD_LINE,
    Card,
    CardItem,
    CardLine,
    Exposure,
    LetterFacts,
    day,
)
from postroom.core.text import HIDDEN_CARRIER, one_line, without_invisible
from postroom.review.links import (
    MAX_ADDRESS,
    MAX_LINKS,
    UNREAD,
    Known,
    Link,
    host_in_label,
    is_spoofed,
    links,
    readable,
    scripts,
    site,
)
from postroom.review.places import find_places
from postroom.review.tables import FINDINGS, MAX_ABOUT, card_line, pattern, words
from postroom.review.tokens import (
    MAX_ADDRESSES,
    MAX_READ,
    RANDOM,
    address_tokens,
    code_spans,
    masked,
    secrets,
)

MAX_LINES: Final = 60
MAX_QUOTE: Final = 60
MAX_NAME: Final = 300  # characters of an item's name
MAX_NAMED: Final = 40  # addresses or hosts that one concern names
MAX_FILES: Final = 200
MAX_HOSTS: Final = 200  # of recipients, and of links, that are compared with known ones
MAX_SCANNED: Final = 1_000_000  # bytes of an attachment that are searched for secrets
MAX_PLACES: Final = 20  # of one item
_ITEMS: Final = {"recipient": 200, "link": 200, "picture": 200}  # items of one kind
_ITEMS_OF_OTHERS: Final = MAX_ADDRESSES
MANY: Final = 5
MANY_HIDDEN: Final = 20
_SHARE: Final = {"attachment": 12}  # lines of one kind, so that none can push the others out
_SHARE_OF_OTHERS: Final = 6


def assess(letter: Letter, facts: LetterFacts, origins: Sequence[str] = ()) -> Card:
    """Return the card of a letter; `origins` says where each attachment came from."""
    assessment = _Assessment(letter, facts, origins)
    kinds: dict[str, list[CardLine]] = {}
    for one in assessment.lines():
        kinds.setdefault(one.kind, []).append(one)
    lines: list[CardLine] = []
    for kind, same in kinds.items():
        same.sort(key=lambda one: -one.level)
        most = _SHARE.get(kind, _SHARE_OF_OTHERS)
        lines += same[:most]
        if rest := same[most:]:
            more = f"{len(rest)} more of this kind are not shown."
            lines.append(CardLine(rest[0].level, kind, more))
    lines.sort(key=lambda one: -one.level)
    if len(lines) > MAX_LINES:
        rest = lines[MAX_LINES - 1 :]
        lines[MAX_LINES - 1 :] = [CardLine(rest[0].level, "more", f"{len(rest)} more lines.")]
    answers = facts.answers and facts.answers._replace(what=_quoted(facts.answers.what, 200))
    return Card(tuple(lines), tuple(dict.fromkeys(assessment.items())), answers)


def _quoted(text: str, most: int = MAX_QUOTE) -> str:
    """Return foreign text as a card may show it: on one line, secrets covered, then cut.

    An address is shown whole, and looking random does not cover it: it says where the letter goes.
    """
    text = masked(one_line(text[:2_000]), unsure=most == MAX_QUOTE)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _name(what: str) -> str:
    """Return an address, link or the like as lines and items of the card name it.

    Where something is covered or cut, the end is its own, so that no two have one name.
    """
    quoted = _quoted(what, MAX_NAME)
    if quoted == one_line(what):
        return quoted
    return f"{quoted[: MAX_NAME - 8]} {hashlib.sha256(what.encode()).hexdigest()[:6]}"


def _names(every: Iterable[str]) -> Iterator[str]:
    return map(_name, islice(filter(None, every), MAX_ABOUT))


def _list_items(name: str, items: Iterable[tuple[str, str]], **fill: object) -> Iterator[CardLine]:
    """Yield sentences that name the items, as many to a line as it holds; each is a pair of what is shown and what it is."""
    every: dict[str, dict[str, None]] = {}
    for show, what in items:
        every.setdefault(show, {})[what] = None
    shown, about = "", list[str]()
    room = MAX_CARD_LINE - 20 - len(FINDINGS[name].says.format(items="", **fill))
    for item in islice(every, MAX_NAMED):
        quoted = _quoted(item, 220)
        if shown and len(shown) + len(quoted) > room:
            yield card_line(name, about, items=shown, **fill)
            shown, about = "", []
        shown = f"{shown}, {quoted}" if shown else quoted
        about += _names(every[item])
    more = f" and {len(every) - MAX_NAMED} more" if len(every) > MAX_NAMED else ""
    if shown:
        yield card_line(name, about, items=f"{shown}{more}", **fill)


def _findings(
    fill: Mapping[str, str],
    most: int = MAX_QUOTE,
    about: Iterable[str] = (),
    /,
    **conditions: object,
) -> Iterator[CardLine]:
    """Yield the findings whose condition holds; what fills their sentences is quoted."""
    for name in filter(conditions.get, conditions):
        quoted = {key: _quoted(text, most) for key, text in fill.items()}
        yield card_line(name, _names(about), **quoted)


def _name_mails(mails: Sequence[Exposure]) -> str:
    """Return the mail that showed something first, and up to two further senders."""
    first, *more = mails
    also = " and ".join(_quoted(one.sender, 80) for one in more[:2])
    return f"{_quoted(str(first), 200)}{f'; later also from {also}' if also else ''}"


def _place_keys(address: Address) -> set[str]:
    """Return the keys under which a letter's text may hold an address."""
    return {key.lstrip("_.-") for key in address_tokens(address.key)[:2]}


def _item(
    kind: str, what: str, mails: Sequence[Exposure], places: Iterable[tuple[int, int]]
) -> CardItem:
    where, first = (_name_mails(mails), mails[0].mail) if mails else ("", "")
    return CardItem(kind, what, where, first, tuple(sorted(set(places))[:MAX_PLACES]))


_SCHEMES: Final = ("web_schemes", "calm_schemes", "script_schemes", "local_schemes")
_TYPES: Final = ("application/pdf", "image/", "text/", "application/")
_ANY_TYPE: Final = "application/octet-stream"


def _oddities(link: Link) -> Iterator[tuple[str, str]]:
    """Yield the findings about one link, each with the host that it shows instead."""
    scheme, host, picture = link.scheme, link.host, pattern("inline_picture").match(link.target)
    authority = re.split(r"[/\\?#]", link.target.partition("://")[2], maxsplit=1)[0]
    shown, (_, colon, port) = host_in_label(link.label), authority.rpartition(":")
    oddities = {
        "link_unread": link.how == UNREAD,
        "link_runs": scheme in words("script_schemes") and not picture,
        "link_picture": picture,
        "link_reaches": scheme in words("local_schemes"),
        "link_program": scheme and not any(scheme in words(name) for name in _SCHEMES),
        "link_hides": "@" in authority,
        "link_numeric": pattern("numeric_host").match(host),
        "link_lies": shown and site(shown) != site(host),
        "link_alphabets": is_spoofed(host),
        "link_script": "xn--" in host or not host.isascii(),
        "link_port": colon and port.isdigit() and port not in ("80", "443", "21"),
        "link_short": site(host) in words("shorteners"),
        "link_long": len(link.target) > 400 and not picture,
        "link_disguised": link.how == "disguised",
    }
    for name in filter(oddities.get, oddities):
        yield name, _quoted(shown) if name == "link_lies" else ""


_MAGIC: Final = (b"\x7fELF", b"#!", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"L\0\0\0\1\x14\2")
_PACKED: Final = (b"PK\3\4", b"Rar!", b"7z\xbc\xaf")


def _file_risk(file: Enclosure) -> str:
    """Return what a file could do to its reader, as the name of a finding, or ""."""
    _, *endings = file.name.lower().rstrip(". ").split(".")
    last, head = (endings or [""])[-1].strip(), file.content[:512]
    program = head.startswith(_MAGIC) or (head[:2] == b"MZ" and b"\0" in head)
    zipped = head.startswith(_PACKED) and last not in words("zipped_documents")
    acts = any(part in file.type for part in words("program_types"))
    risks = {
        "file_acts": program or acts or last in words("program_files"),
        "file_poses": not last.isascii() or words("posing_endings") & set(endings),
        "file_macros": b"vbaProject.bin" in file.content,
        "file_packed": zipped or last in words("archives"),
        "file_type": any(
            last in words(f"type_{kind}") and not file.type.startswith((kind, _ANY_TYPE))
            for kind in _TYPES
        ),
    }
    return next(filter(risks.get, risks), "")


def _text_of(file: Enclosure) -> str:
    """Return the beginning of a file that is text, else nothing."""
    raw = file.content[:MAX_SCANNED]
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return raw.decode("utf-16", "replace")
    text = "" if b"\0" in raw[:1_024] else raw.decode("utf-8", "replace")
    return text if text.count("\ufffd") * 20 <= len(text) else ""


def _file_name(at: int) -> str:
    return f"{FILE} {at}"


def _make_unique(names: dict[str, str]) -> None:
    """Number the names that several keys have, such as "a number" where what it is must not be shown."""
    count = Counter[str]()
    for key, name in names.items():
        count[name] += 1
        if count[name] > 1:
            names[key] = f"{name} ({count[name]})"


class _Assessment:
    """One letter beside what is known; each method yields the lines of one concern."""

    def __init__(self, letter: Letter, facts: LetterFacts, origins: Sequence[str]) -> None:
        self.letter, self.facts, self.origins = letter, facts, origins
        own = facts.own or (letter.sender,)
        self.own = {address.key for address in own}
        self.familiar = facts.written_to | self.own
        self.own_domains = {address.domain.casefold() for address in own}
        written = {key.rpartition("@")[2] for key in self.familiar | facts.contacts}
        self.known = Known(self.own_domains | written, facts.contacts | self.familiar)
        self.named = tuple(dict.fromkeys((*letter.envelope, *letter.reply_to)))
        self.recipients = {address.key for address in letter.envelope}
        # A sender in this set reads what becomes of an address or a link in their mail.
        self.readers = self.recipients & facts.written_to - self.own
        self.text = without_invisible(f"{letter.subject}\n{letter.text}")
        self.links = links(self.text, letter.html)
        self.places: dict[tuple[str, str], list[tuple[int, int]]] = {}
        self.covered = bytearray(min(len(letter.text), MAX_READ))  # 1 where a secret stands
        for kind, key, start, end in find_places(letter.text):
            if kind not in ("number", "code") or key in facts.seen:
                self.places.setdefault((kind, key), []).append((start, end))
            if kind == "secret" and key != RANDOM:
                self.covered[start:end] = b"\1" * (end - start)
        # The numbers and codes that a mail showed, by their token: as the card names them.
        numbers = code_spans(self.text, anywhere=True) if facts.seen else ()
        tokens = dict.fromkeys(token for token, _, _ in numbers if token in facts.seen)
        self.numbers = {token: self._number(*token.split(":")) for token in tokens}
        _make_unique(self.numbers)

    def _number(self, kind: str, digits: str) -> str:
        """Return a number as it stands in the text, or "a number" where it is, or is part of, a secret."""
        places = self.places.get((kind, f"{kind}:{digits}"), [(0, 0)])
        written = one_line(self.letter.text[slice(*places[0])])
        whole = written and _name(written) == written and not self._is_covered(places)
        return written if whole else f"a {kind}"

    def _is_covered(self, places: Sequence[tuple[int, int]]) -> bool:
        """Whether one of these places is in a secret, or has one in it."""
        return any(any(self.covered[start:end]) for start, end in places)

    def lines(self) -> Iterator[CardLine]:
        found = (self.domains(), self.provenance(), self.secrets(), self.link_lines())
        return chain(*found, self.attachments(), self.people(), self.other(), self.amounts())

    def domains(self) -> Iterator[CardLine]:
        every = dict.fromkeys(address.domain for address in self.named)
        for domain in islice(every, MAX_HOSTS):
            known, _ = self.known.lookalike_of(domain)
            names = {"domain": domain, "known": known, "shown": readable(domain)}
            spoofed = is_spoofed(domain)
            there = [address.spec for address in self.named if address.domain == domain]
            yield from _findings(
                names, MAX_QUOTE, there, domain_look_alike=known, domain_alphabets=spoofed
            )
        about = {"read": f"{MAX_HOSTS}", "all": f"{len(every):,}"}
        yield from _findings(about, domains_unread=len(every) > MAX_HOSTS)
        for address in self.named:
            known = "" if address.key in self.familiar else self.known.imitated(address.key)
            names = {"address": address.spec, "known": known}
            named = f"{address.name} {address.local}".split()
            mixed = any(len(scripts(word)) > 1 for word in named)
            yield from _findings(
                names, 200, [address.spec], address_look_alike=known, name_alphabets=mixed
            )

    def provenance(self) -> Iterator[CardLine]:
        seen = self.facts.seen
        for address in self.named:
            mails = () if address.key in self.familiar else self._mails_with(address.key)
            if mails and (name := self._origin(address, mails[0])):
                shown, about = _quoted(address.spec, 200), [_name(address.spec)]
                yield card_line(name, about, address=shown, source=_name_mails(mails))
        for token, what in self.numbers.items():
            number = token.startswith("number:")
            name = f"number_{self._destination(seen[token][0])}" if number else "code_from_mail"
            yield card_line(name, [what], source=_name_mails(seen[token]))
        leads: dict[tuple[str, tuple[Exposure, ...]], list[str]] = {}
        for link in self.links:
            leads.setdefault((link.host, self._mails_with_link(link)), []).append(link.target)
        for (host, mails), targets in leads.items():
            if mails and site(host) not in self.known.sites:
                name = f"link_{self._destination(mails[0])}"
                source = _name_mails(mails)
                yield card_line(name, _names(targets), host=_quoted(host), source=source)

    def _origin(self, address: Address, first: Exposure) -> str:
        """Return the finding about an address that a mail showed first, or ""."""
        parts, domains = first.parts, [address.domain.casefold(), first.sender.rpartition("@")[2]]
        owners = {site(domain) for domain in domains}
        answered = "to" in parts and address.key in self.facts.answered
        same_owner = len(owners) == 1 and not owners & words("public_mail")
        if first.sent or "from" in parts or answered or ("reply_to" in parts and same_owner):
            return ""
        return "address_from_recipient" if first.sender in self.readers else "address_from_mail"

    def _destination(self, first: Exposure) -> str:
        back = first.sent or first.sender in self.readers or self.recipients == {first.sender}
        return "returned" if back else "from_mail"

    def _mails_with(self, key: str) -> Sequence[Exposure]:
        every = (self.facts.seen.get(token) for token in address_tokens(key))
        return next(filter(None, every), ())

    def _mails_with_link(self, link: Link) -> tuple[Exposure, ...]:
        seen = self.facts.seen
        return tuple(seen.get(link.target) or seen.get(f"host:{link.host}", ()))

    def items(self) -> Iterator[CardItem]:
        """Yield what stands in the letter, with the mails that showed it and its places in the text."""
        named = {key for one in self.named for key in _place_keys(one)}
        every: dict[str, dict[str, Sequence[Exposure]]] = {}
        for link in self.links:
            kind = "picture" if link.how == "loads" else "link"
            every.setdefault(kind, {})[link.target] = self._mails_with_link(link)
        for token in self.numbers:
            every.setdefault(token.partition(":")[0], {})[token] = self.facts.seen[token]
        for kind, key in self.places:
            if kind == "address" and key not in named:
                every.setdefault(kind, {})[key] = self._mails_with(key)
            elif kind in ("secret", "amount"):
                every.setdefault(kind, {})[key] = ()
        for kind, people in (
            ("recipient", self.letter.envelope),
            ("answers to", self.letter.reply_to),
        ):
            for one in people[: _ITEMS["recipient"]]:
                places = [
                    p for key in _place_keys(one) for p in self.places.get(("address", key), ())
                ]
                yield _item(kind, _name(one.spec), self._mails_with(one.key), places)
        for kind, found in every.items():
            items = {key: mails for key, mails in found.items() if key}
            keys = [*islice(items, _ITEMS.get(kind, _ITEMS_OF_OTHERS))]
            names = {
                key: self._item_name(kind, key, self.places.get((kind, key), ())) for key in keys
            }
            _make_unique(names)
            for key, name in names.items():
                yield _item(kind, name, items[key], self.places.get((kind, key), ()))

    def _item_name(self, kind: str, key: str, places: Sequence[tuple[int, int]]) -> str:
        if kind == "secret" or key in self.numbers:
            return self.numbers.get(key, key)
        if kind in ("address", "amount") and self._is_covered(places):
            return f"an {kind}"
        # An address as it is written: a key in lower case may hide a secret.
        return _name(self.letter.text[slice(*places[0])] if kind == "address" else key)

    def secrets(self) -> Iterator[CardLine]:
        letter, files = self.letter, self.letter.attachments[:MAX_FILES]
        hits: dict[str, dict[str, str]] = {}  # by what it is and where, the file that holds it
        places = [
            ("the subject", letter.subject, ""),
            ("the text", letter.text, ""),
            ("a name", "\n".join(address.name for address in self.named), ""),
        ]
        for at, file in enumerate(files):
            place = f"the attachment {_quoted(file.name)}"
            named = _file_name(at)
            places += [(place, file.name, named), (place, _text_of(file), named)]
            packed = file.content.startswith(_PACKED)  # a presentation may end in .key
            name = file.name.lower()
            if not packed and any(fnmatchcase(name, form) for form in words("secret_files")):
                hits.setdefault("", {})[place] = named
        for place, text, file_name in places:
            for what in secrets(text):
                hits.setdefault(what, {})[place] = file_name
        for what, where in sorted(hits.items()):
            named = " and ".join(list(where)[:3])
            seems = f"{named[0].upper()}{named[1:]} seem{'s' * (len(where) == 1)}"
            name = "secret_unsure" if what == RANDOM else "secret"
            lower = f"{what[:1].lower()}{what[1:]}"
            about = ([what] if "the text" in where else []) + list(filter(None, where.values()))
            yield card_line(name if what else "secret_file", about, places=seems, what=lower)

    def link_lines(self) -> Iterator[CardLine]:
        groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
        hosts = dict.fromkeys(link.host for link in self.links)
        twins = {host: self.known.lookalike_of(host) for host in islice(hosts, MAX_HOSTS)}
        for link in self.links:
            odd = list(_oddities(link))
            known, sure = twins.get(link.host, ("", False))
            if known:
                odd.append(("link_look_alike" if sure else "link_ending", _quoted(known)))
            if link.how == "loads" and link.host:
                odd.append(("remote_markdown", ""))
            limit = f"{MAX_LINKS:,} links, {MAX_ADDRESS:,} characters of each"
            place = link.host or (f"{link.scheme}:" if link.scheme else limit)
            shown = link.target if link.scheme == "mailto" else place
            for group in odd or [("link", "")] * (link.how != "loads"):
                groups.setdefault(group, []).append((shown, link.target))
        yield from _findings({"all": f"{len(hosts):,}"}, links_many=len(hosts) > MAX_HOSTS)
        for (name, other), items in groups.items():
            yield from _list_items(name, items, shown=other, known=other)

    def attachments(self) -> Iterator[CardLine]:
        files = self.letter.attachments
        for at, file in enumerate(files[:MAX_FILES]):
            origin = self.origins[at] if at < len(self.origins) else "agent"
            digest = hashlib.sha256(file.content).hexdigest()[:12]
            about = f"{file.type[:60]}, {len(file.content):,} bytes, sha256 {digest}"
            text = f"{_quoted(file.name)}: {about}, from the {_quoted(origin)}"
            unread = "file_unread" if len(file.content) > MAX_SCANNED and _text_of(file) else ""
            plain = "file_from_mail" if origin == "mail" else "file"
            yield card_line(_file_risk(file) or unread or plain, [_file_name(at)], file=text)
        numbers = {"read": f"{MAX_FILES}", "all": f"{len(files):,}"}
        yield from _findings(numbers, files_unread=len(files) > MAX_FILES)

    def people(self) -> Iterator[CardLine]:
        letter, people, own = self.letter, self.letter.envelope, self.own_domains
        there = self.recipients if self.facts.thread is None else self.facts.thread | self.own
        concerns = {
            "first_contact": [a for a in people if a.key not in self.familiar],
            "growth": [a for a in people if a.key not in there],
            "bcc": letter.bcc,
            "reply_to": [a for a in letter.reply_to if a.domain.casefold() not in own],
            "outside_domain": [a for a in people if a.domain.casefold() not in own],
        }
        for name, named in concerns.items():
            yield from _list_items(name, ((self._shown(name, one), one.spec) for one in named))
        yield from _findings({"all": f"{len(people):,}"}, many=len(people) > MANY)

    def _shown(self, name: str, address: Address) -> str:
        """Return an address as the line of a finding names it."""
        if name == "outside_domain":
            return address.domain
        wrote = self.facts.wrote.get(address.key) if name == "first_contact" else None
        return address.spec if wrote is None else f"{address.spec} (wrote to you on {day(wrote)})"

    def other(self) -> Iterator[CardLine]:
        letter, facts = self.letter, self.facts
        hidden = len(re.findall(HIDDEN_CARRIER, letter.text))
        yield from _findings(
            {"all": f"{hidden:,}", "letters": ", ".join(facts.repeats[:10])},
            120,
            hidden_text=hidden > MANY_HIDDEN,
            hidden_few=0 < hidden <= MANY_HIDDEN,
            repeat=facts.repeats,
            automatic=facts.automatic,
            empty=not (letter.text.strip() or letter.html.strip() or letter.attachments),
            no_subject=not letter.subject.strip(),
        )

    def amounts(self) -> Iterator[CardLine]:
        yield from _list_items(
            "amount",
            (
                (key, key)
                for (kind, key), places in self.places.items()
                if kind == "amount" and not self._is_covered(places)
            ),
        )
