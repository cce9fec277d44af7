"""The risk card: what a person should see of a letter before approving it, found by code alone."""

from __future__ import annotations

import hashlib
import re
from itertools import islice
from typing import TYPE_CHECKING, Final

from postroom.core import findings
from postroom.core.card import MAX_LINE, Card, Facts, Level, Line
from postroom.core.findings import MAX_TOKENS, Link, names, readable, site, tokens
from postroom.core.text import line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from postroom.core.letter import Enclosure, Letter

__all__ = ["Card", "Facts", "Level", "Line", "assess", "letter_tokens", "tokens"]

MAX_LINES: Final = 60
MAX_QUOTE: Final = 60
MAX_NAMED: Final = 40  # addresses or hosts that one concern names
MAX_FILES: Final = 200
MAX_HOSTS: Final = 200  # of recipients, and of links, that are compared with known ones
MAX_SCANNED: Final = 1_000_000  # bytes of an attachment that are searched for secrets
MANY: Final = 5
_SHARE: Final = {"attachment": 12}  # lines of one kind, so that none can push the others out
_SHARE_OF_OTHERS: Final = 6


PLAIN, LOOK, STOP = Level


def letter_tokens(letter: Letter) -> frozenset[str]:
    """Return what of a letter could have been taken from a mail, its recipients before all."""
    keys = dict.fromkeys(address.key for address in (*letter.envelope, *letter.reply_to))
    inside = tokens(f"{letter.subject}\n{letter.text}", letter.html, anywhere=True)
    return frozenset(islice((*keys, *inside), MAX_TOKENS))


def assess(letter: Letter, facts: Facts, origins: Sequence[str] = ()) -> Card:
    """Return the card of a letter; `origins` says where each attachment came from."""
    desk = _Desk(letter, facts)
    kinds: dict[str, list[Line]] = {}
    for one in (
        *desk.domains(),
        *desk.taken(),
        *desk.secrets(),
        *desk.linked(),
        *desk.attached(origins),
        *desk.people(),
        *desk.rest(),
    ):
        kinds.setdefault(one.kind, []).append(one)
    lines: list[Line] = []
    for kind, same in kinds.items():
        same.sort(key=lambda one: -one.level)
        most = _SHARE.get(kind, _SHARE_OF_OTHERS)
        lines += same[:most]
        if rest := same[most:]:
            lines.append(Line(rest[0].level, kind, f"{len(rest)} more of this kind are not shown."))
    lines.sort(key=lambda one: -one.level)
    if len(lines) > MAX_LINES:
        rest = lines[MAX_LINES - 1 :]
        lines[MAX_LINES - 1 :] = [Line(rest[0].level, "more", f"{len(rest)} more lines.")]
    return Card(tuple(lines))


def _quoted(text: str, most: int = MAX_QUOTE) -> str:
    """Return foreign text as a card may show it: on one line, secrets covered, then cut.

    An address is shown whole, and looking random does not cover it: it says where the letter goes.
    """
    text = findings.masked(line(text[:2_000]), unsure=most == MAX_QUOTE)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _listed(level: Level, kind: str, lead: str, items: Iterable[str]) -> Iterator[Line]:
    """Give sentences that name the items, as many to a line as it holds."""
    every, shown = list(dict.fromkeys(items)), ""
    for item in every[:MAX_NAMED]:
        quoted = _quoted(item, 220)
        if shown and len(lead) + len(shown) + len(quoted) > MAX_LINE - 20:
            yield Line(level, kind, f"{lead}: {shown}.")
            shown = ""
        shown = f"{shown}, {quoted}" if shown else quoted
    more = f" and {len(every) - MAX_NAMED} more" if len(every) > MAX_NAMED else ""
    if shown:
        yield Line(level, kind, f"{lead}: {shown}{more}.")


_HIDDEN: Final = re.compile("[\u180e\u200b\u202a-\u202e\u2060-\u206f\U000e0000-\U000e0fff]+")
_CALM: Final = findings.WEB | names("mailto tel sms cid geo xmpp webcal")
_RUNS: Final = names("javascript vbscript data blob")
_REACHES: Final = names("file smb afp nfs search-ms ms-msdt")
_SHORT: Final = names(
    "bit.ly t.co tinyurl.com goo.gl is.gd ow.ly buff.ly rebrand.ly cutt.ly t.ly shorturl.at rb.gy lnkd.in tiny.cc v.gd"
)
_NUMERIC: Final = re.compile(r"\[|(?:0x[0-9a-f]*|[0-9]+)(?:\.(?:0x[0-9a-f]*|[0-9]+)){0,3}$")
_PICTURE: Final = re.compile(r"data:image/(?:png|jpe?g|gif|webp)[;,]", re.IGNORECASE)


def _oddities(link: Link) -> Iterator[tuple[Level, str]]:
    scheme, host, picture = link.scheme, link.host, _PICTURE.match(link.target)
    authority = re.split(r"[/\\?#]", link.target.partition("://")[2], maxsplit=1)[0]
    shown, (_, colon, port) = findings.shown(link.label), authority.rpartition(":")
    lies = shown and site(shown) != site(host)
    odd_port = colon and port.isdigit() and port not in ("80", "443", "21")
    for level, said, odd in (
        (STOP, "What is beyond was not read", link.how == findings.UNREAD),
        (STOP, "A link runs code or holds a page in itself", scheme in _RUNS and not picture),
        (LOOK, "A picture stands in the HTML itself and was not looked at", picture),
        (STOP, "A link reaches into the reader's own machine or network", scheme in _REACHES),
        (LOOK, "A link opens another program", scheme and scheme not in _CALM | _RUNS | _REACHES),
        (STOP, "A name before the @ hides where a link leads", "@" in authority),
        (STOP, "A link leads to a number instead of a name", _NUMERIC.match(host)),
        (STOP, "A form sends what its reader types", link.how == "sends"),
        (STOP, f"A link shows {_quoted(shown) if lies else ''} and leads elsewhere", lies),
        (STOP, "A host is written in letters that look like others", findings.poses(host)),
        (LOOK, "A host is written in another script", "xn--" in host or not host.isascii()),
        (LOOK, "A link names an unusual port", odd_port),
        (LOOK, "A shortener hides where a link leads", site(host) in _SHORT),
        (LOOK, "A link is long enough to carry text out", len(link.target) > 400 and not picture),
        (LOOK, "A link is spelled so that filters miss it", link.how == "disguised"),
    ):
        if odd:
            yield level, said


_PROGRAMS: Final = names(
    "exe com scr pif bat cmd msi msp cpl dll jar js jse vbs vbe wsf wsh ps1 psm1 hta lnk url reg inf scf chm app apk "
    "dmg pkg deb rpm sh bash zsh command py pyw rb pl php iso img vhd vhdx docm dotm xlsm xltm xlam xlsb pptm potm "
    "ppsm ppam html htm xhtml shtml mht mhtml svg svgz xll one appx msix jnlp swf"
)
_ZIPPED: Final = names("docx xlsx pptx odt ods odp epub pages numbers key")
_POSING: Final = names("exe scr bat cmd msi js vbs lnk hta")
_ARCHIVES: Final = names("zip rar 7z tar gz tgz bz2 xz cab ace arj lzh zst")
_PROGRAM_TYPE: Final = re.compile(
    r"html|svg|(?:java|ecma|vb)script|msdownload|/x-sh|/hta|java-archive|macroenabled|executable|dosexec|iso9660|x-msdos|x-ms-shortcut"
)
_MAGIC: Final = (b"\x7fELF", b"#!", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"L\0\0\0\1\x14\2")
_PACKED: Final = (b"PK\3\4", b"Rar!", b"7z\xbc\xaf")
_EXPECTED: Final = {
    "application/pdf": names("pdf"),
    "image/": names("png jpg jpeg gif webp heic bmp tif tiff"),
    "text/": names("txt log md"),
    "application/": names("doc docx xls xlsx ppt pptx odt ods"),
}
_SECRET_FILE: Final = re.compile(
    r"(?:token|credentials?|client_secret.*|service[-_]?account.*)\.json|id_(?:rsa|dsa|ecdsa|ed25519)|_?\.?netrc"
    r"|\.env(?:\..*)?|.*\.env|\.(?:npmrc|pypirc|pgpass|htpasswd|git-credentials)|shadow|wallet\.dat"
    r"|.*\.(?:pem|key|p12|pfx|kdbx?|ppk|jks|keystore|ovpn)"
)


def _weighed(file: Enclosure) -> tuple[Level, str]:
    """Return what a file could do to its reader."""
    _, *endings = file.name.lower().rstrip(". ").split(".")
    last, head = (endings or [""])[-1].strip(), file.content[:512]
    program = head.startswith(_MAGIC) or (head[:2] == b"MZ" and b"\0" in head)
    if program or last in _PROGRAMS or _PROGRAM_TYPE.search(file.type):
        return STOP, "it can run or act when opened"
    if not last.isascii() or _POSING & set(endings):
        return STOP, "its name poses as another type"
    if b"vbaProject.bin" in file.content:
        return STOP, "it holds macros"
    if last in _ARCHIVES or (head.startswith(_PACKED) and last not in _ZIPPED):
        return STOP, "what is packed in it was not looked at"
    for kind, fitting in _EXPECTED.items():
        if last in fitting and not file.type.startswith((kind, "application/octet-stream")):
            return STOP, "its name and its type disagree"
    return PLAIN, ""


def _as_text(file: Enclosure) -> str:
    """Return the beginning of a file that is text, else nothing."""
    raw = file.content[:MAX_SCANNED]
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return raw.decode("utf-16", "replace")
    text = "" if b"\0" in raw[:1_024] else raw.decode("utf-8", "replace")
    return text if text.count("\ufffd") * 20 <= len(text) else ""


class _Desk:
    """One letter beside what is known; each method gives the lines of one concern."""

    def __init__(self, letter: Letter, facts: Facts) -> None:
        self.letter, self.facts = letter, facts
        own = facts.own or (letter.sender,)
        keys = {address.key for address in own}
        self.familiar = facts.written_to | keys
        self.own_domains = {address.domain.casefold() for address in own}
        written = {key.rpartition("@")[2] for key in self.familiar}
        self.known = findings.Known(self.own_domains | facts.known_domains | written)
        self.named = tuple(dict.fromkeys((*letter.envelope, *letter.reply_to)))
        self.text = findings.visible(f"{letter.subject}\n{letter.text}")
        self.links = findings.links(self.text, letter.html)
        known = None if facts.thread is None else facts.thread | keys
        self.joining = [a.spec for a in letter.envelope if known is not None and a.key not in known]

    def domains(self) -> Iterator[Line]:
        every = dict.fromkeys(address.domain for address in self.named)
        for domain in islice(every, MAX_HOSTS):
            known, _ = self.known.twin(domain)
            if known:
                text = f"{_quoted(domain)} looks like {_quoted(known)}, which is known, but is not."
                yield Line(STOP, "look_alike", text)
            if findings.poses(domain):
                text = f"{_quoted(domain)} is shown as {_quoted(readable(domain))}: alphabets are mixed."
                yield Line(STOP, "mixed_scripts", text)
        if len(every) > MAX_HOSTS:
            text = f"Only {MAX_HOSTS} of {len(every):,} domains were compared with known ones."
            yield Line(STOP, "look_alike", text)
        for address in self.named:
            if any(
                len(findings.scripts(word)) > 1
                for word in f"{address.name} {address.local}".split()
            ):
                text = f"The name of {_quoted(address.spec, 200)} mixes alphabets."
                yield Line(LOOK, "mixed_scripts", text)

    def taken(self) -> Iterator[Line]:
        seen, thread = self.facts.seen, self.facts.thread
        for address in self.named:
            if address.key in seen and address.key not in self.familiar:
                text = f"{_quoted(address.spec, 200)} first stood in {_quoted(seen[address.key])}."
                yield Line(LOOK if address.key in (thread or ()) else STOP, "from_mail", text)
        codes = findings.codes(self.text, anywhere=True) if seen else ()
        for token in dict.fromkeys(token for token in codes if token in seen):
            kind, answer = token.partition(":")[0], thread is not None and not self.joining
            level = STOP if kind == "code" else PLAIN if answer else LOOK
            text = f"A {kind} in the letter first stood in {_quoted(seen[token])}."
            yield Line(level, "from_mail", text)
        leads = {
            (a.host, seen.get(a.target) or seen.get(f"host:{a.host}")): None for a in self.links
        }
        for host, where in leads:
            if where and site(host) not in self.known.sites:
                text = f"The link to {_quoted(host)} first stood in {_quoted(where)}."
                yield Line(LOOK, "from_mail", text)

    def secrets(self) -> Iterator[Line]:
        letter, files = self.letter, self.letter.attachments[:MAX_FILES]
        found: dict[str, dict[str, None]] = {}
        places = [
            ("the subject", letter.subject),
            ("the text", letter.text),
            ("a name", "\n".join(address.name for address in self.named)),
        ]
        for file in files:
            place = f"the attachment {_quoted(file.name)}"
            places += [(place, file.name), (place, _as_text(file))]
            packed = file.content.startswith(_PACKED)  # a presentation may end in .key
            if _SECRET_FILE.fullmatch(file.name.lower()) and not packed:
                found.setdefault("A file that is made to hold secrets", {})[place] = None
        for place, text in places:
            for what in findings.secrets(text) if text.strip() else ():
                found.setdefault(what, {})[place] = None
        for what, where in sorted(found.items()):
            level = LOOK if what == findings.RANDOM else STOP
            yield Line(level, "secrets", f"{what} seems to stand in {', '.join(list(where)[:3])}.")

    def linked(self) -> Iterator[Line]:
        groups: dict[tuple[Level, str, str], dict[str, None]] = {}
        hosts = dict.fromkeys(link.host for link in self.links)
        twins = {host: self.known.twin(host) for host in islice(hosts, MAX_HOSTS)}
        for link in self.links:
            odd = [(level, "links", said) for level, said in _oddities(link)]
            known, sure = twins.get(link.host, ("", False))
            if known:
                text = f"A host looks like {_quoted(known)} and is not it"
                odd.append((STOP if sure else LOOK, "links", text))
            if link.how == "loads" and link.host:
                opened = "Opening the letter" if self.letter.html else "Showing its Markdown"
                text = f"{opened} tells these hosts, and the address can carry text out"
                odd.append((STOP, "remote_images", text))
            limit = f"{findings.MAX_LINKS:,} links, {findings.MAX_ADDRESS:,} characters of each"
            place = link.host or (f"{link.scheme}:" if link.scheme else limit)
            shown = link.target if link.scheme == "mailto" else place
            for group in odd or [(PLAIN, "links", "Links lead to")] * (link.how != "loads"):
                groups.setdefault(group, {})[shown] = None
        if len(hosts) > MAX_HOSTS:
            text = f"Links lead to {len(hosts):,} hosts, more than were compared with known ones."
            yield Line(STOP, "links", text)
        for (level, kind, lead), items in groups.items():
            yield from _listed(level, kind, lead, items)

    def attached(self, origins: Sequence[str]) -> Iterator[Line]:
        files = self.letter.attachments
        for at, file in enumerate(files[:MAX_FILES]):
            origin = origins[at] if at < len(origins) else "agent"
            level, why = _weighed(file)
            digest = hashlib.sha256(file.content).hexdigest()[:12]
            about = f"{file.type[:60]}, {len(file.content):,} bytes, sha256 {digest}"
            text = f"{_quoted(file.name)}: {about}, from the {_quoted(origin)}{why and f'; {why}'}."
            yield Line(max(level, LOOK if origin == "mail" else PLAIN), "attachment", text)
        if len(files) > MAX_FILES:
            text = f"Only {MAX_FILES} of {len(files):,} files were looked at."
            yield Line(STOP, "attachment", text)

    def people(self) -> Iterator[Line]:
        letter, own = self.letter, self.own_domains
        new = [address.spec for address in letter.envelope if address.key not in self.familiar]
        outside = [a.domain for a in letter.envelope if a.domain.casefold() not in own]
        steered = [a.spec for a in letter.reply_to if a.domain.casefold() not in own]
        for level, kind, lead, items in (
            (LOOK, "first_contact", "No person has written to them before", new),
            (LOOK, "growth", "They take no part in the conversation so far", self.joining),
            (
                LOOK,
                "bcc",
                "Blind copies, unseen by the others, go to",
                [a.spec for a in letter.bcc],
            ),
            (LOOK, "reply_to", "Answers will go to", steered),
            (PLAIN, "outside_domain", "It leaves for", outside),
        ):
            yield from _listed(level, kind, lead, items)
        if len(letter.envelope) > MANY:
            yield Line(PLAIN, "many", f"It goes to {len(letter.envelope):,} recipients.")

    def rest(self) -> Iterator[Line]:
        letter, facts = self.letter, self.facts
        hidden = sum(len(run) for run in _HIDDEN.findall(letter.text))
        unseen = f"It holds {hidden:,} characters that nobody sees and that can carry a message."
        again = f"The same text was written before: {_quoted(', '.join(facts.repeats[:10]), 120)}."
        blank = not (letter.text.strip() or letter.html.strip() or letter.attachments)
        for level, kind, text, so in (
            (STOP if hidden > 20 else LOOK, "hidden", unseen, hidden),
            (LOOK, "repeat", again, facts.repeats),
            (LOOK, "automatic", "It answers a mail that was sent automatically.", facts.automatic),
            (PLAIN, "empty", "It has no text and no attachment.", blank),
            (PLAIN, "empty", "It has no subject.", not letter.subject.strip()),
        ):
            if so:
                yield Line(level, kind, text)
