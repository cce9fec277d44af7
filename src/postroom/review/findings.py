"""What stands in a text: links in every spelling, secrets, and what could have been taken from a mail."""

from __future__ import annotations

import re
import unicodedata
from contextlib import suppress
from functools import cache, lru_cache
from html import unescape
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote

from postroom.core.lookalike import skeleton

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from publicsuffixlist import PublicSuffixList

MAX_TOKENS: Final = 2_000
MAX_COVERS: Final = 5
MAX_LINKS: Final = 20_000  # places in a letter where a link stands; a card that met more says so
MAX_ADDRESS: Final = 4_000  # characters of a link
UNREAD: Final = "unread"  # how a link is that stands for what is beyond them
RANDOM: Final = "A long random-looking string"  # a key, or the number of a parcel


class Link(NamedTuple):
    """An address in a text; `how` it is there: "" (written), "loads" or "disguised"."""

    target: str
    scheme: str
    host: str
    label: str = ""
    how: str = ""


def names(text: str) -> frozenset[str]:
    """Return the words of a table as a set."""
    return frozenset(text.split())


WEB: Final = names("http https ftp ws wss")
_ENDINGS: Final = names(
    "com org net edu gov mil int info biz app dev xyz top site online shop store club click link live cloud bank page"
)
_FILES: Final = names("py js ts sh rs md pl cs gz rb mk ps cc hs vb db bz xz")

_UNSEEN: Final = re.compile(
    "[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0000-\U000e0fff]+"
)
_ZEROS: Final = re.compile(r"(&#[xX]?)0++(?=[0-9a-fA-F])")
_ENTITY: Final = re.compile(
    r"&(?:#[0-9]{1,7};?|#[xX][0-9a-fA-F]{1,6};?|[A-Za-z][A-Za-z0-9]{1,31};?)"
)
# A tag that another begins in is no longer one: without the other it would take in what follows.
_INLINE: Final = re.compile(
    r"</?(?:b|i|u|a|em|strong|span|font|wbr|s|sub|sup|code)(?:\s[^<>]*+)?>|<[a-z/!?][^<>]*+(?=<)",
    re.I,
)
_TAG: Final = re.compile(r"<[A-Za-z/!?][^<>]*+>?+")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+*-]{1,30}+):")
_BARE: Final = re.compile(r"(?:[^\W_][\w-]{0,62}+\.){1,8}([^\W\d_]{2,24}|xn--[\w-]{1,59})(?![\w-])")
_WRITTEN: Final = re.compile(
    r"""(?<![A-Za-z])(?:[A-Za-z][A-Za-z0-9+*-]{1,30}+:(?://|\\\\
        | (?<=(?i:mailto|magnet):)(?=[^\s:]) | (?<=(?i:tel|sms):)(?=[^\s:]) | (?<=(?i:search-ms):) | (?<=(?i:ms-msdt):)
        | (?:(?<=(?i:javascript):)|(?<=(?i:vbscript):))(?=\S{0,200}?[(=;%])
        | (?<=(?i:data):)(?=[\w.+-]{0,60}(?:/[\w.+-]{1,60})?(?:;base64|;charset|,%|,<)|text/html))
      | (?<![\w@./-])(?:[^\W_][\w-]{0,62}+\.){1,8}
        (?:(?<=(?i:www).)[\w-]|(?:[a-z]{2,24}|[A-Z]{2,24}|xn--[a-z0-9-]{1,59})(?::\d{1,5})?/(?=[^\s/]))
      | (?<!\\)\\\\(?=[\w.-]{2,60}[\\@][\w$]))
      [^\s<>"`|]{0,4000}+""",
    re.VERBOSE,
)
_MARKDOWN: Final = re.compile(
    r"(?:(!?)\[([^\[\]]{0,300}+))?+\]\(\s{0,9}<?+([^\s()<>]{1,4000}+(?:\([^\s()<>]{0,200}+\)?+)?+)"
)
_DEFINED: Final = re.compile(
    r"^[> \t]{0,9}\[(?!\^)([^\[\]]{1,300}+)\]:\s{0,9}<?+([^\s<>]{1,4000}+)", re.M
)
_REFERRED: Final = re.compile(r"(!?)\[([^\[\]]{1,300}+)\]\s?\[([^\[\]]{0,300}+)\]")
_HREF: Final = re.compile(
    r"""(?<![\w:-])(?:xlink:)?href\s*+=\s*+(?:"\s*+([^"]{0,4000}+)|'\s*+([^']{0,4000}+)|([^\s"'>][^\s>]{0,4000}+))""",
    re.I,
)
_CLOSED: Final = re.compile("</a", re.I)
_NUMBERED: Final = re.compile(r"[0-9.]+|\[?[0-9a-fA-F.:]*:[0-9a-fA-F.:]*]?")  # an IP address


def visible(text: str) -> str:
    """Return the text without the characters that hide inside its words."""
    return text if text.isascii() else _UNSEEN.sub("", text)


_character: Final = lru_cache(maxsize=1_000)(unescape)


def unescaped(html: str) -> str:
    """Return the text with its entities as characters."""
    if "&" not in html:
        return html
    return _ENTITY.sub(lambda found: _character(found.group()), _ZEROS.sub(r"\1", html))


def all_text(html: str) -> str:
    """Return the words of a page, the hidden ones too."""
    return visible(unescaped(_TAG.sub(" ", _INLINE.sub("", html))))


def ascii_host(host: str) -> str:
    """Return a host as name servers know it."""
    host = (
        unicodedata.normalize("NFKC", unquote(host[:255])).casefold().replace("。", ".").strip(".")
    )
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        return host


def readable(host: str) -> str:
    """Return a host as its reader sees it, `xn--` decoded."""
    labels = host[:255].casefold().split(".")
    for at, label in enumerate(labels):
        with suppress(UnicodeError, OverflowError):
            labels[at] = label[4:].encode().decode("punycode") if label[:4] == "xn--" else label
    return ".".join(labels)


@cache
def _suffixes() -> PublicSuffixList:
    from publicsuffixlist import PublicSuffixList  # six bare starts of Python: for cards alone

    return PublicSuffixList()


@lru_cache(maxsize=4_096)
def site(host: str) -> str:
    """Return the registrable domain of a host; an IP address, and what nobody registered, as it is."""
    if not host or _NUMBERED.fullmatch(host):
        return host
    return _suffixes().privatesuffix(host) or host


def address_key(address: str) -> str:
    """Return an address as `Address.key` has it, whatever case or script it is written in."""
    local, at, host = address.rpartition("@")
    return f"{local.casefold()}@{ascii_host(host)}" if at else address.casefold()


def address_tokens(key: str) -> tuple[str, ...]:
    """Return the tokens by which a mail may have shown an address: whole, or without a tag and what has signs in it."""
    local, _, host = key.rpartition("@")
    tail = re.split(r"[^\w.%+-]", local)[-1]
    return key, f"{tail}@{host}", f"{tail.partition('+')[0]}@{host}"


def shown(label: str) -> str:
    """Return the host that a link's text shows, if it shows one."""
    for found in islice(_BARE.finditer(label), 20):
        ending = found[1].lower()
        marked = found[0][:4].lower() == "www." or label[: found.start()].endswith(("//", "@"))
        if marked or ending in _ENDINGS or (len(ending) == 2 and ending not in _FILES):
            return ascii_host(found[0])
    return ""


def links(text: str, html: str = "", page: str = "") -> list[Link]:
    """Return the links of a text and of a page and its words, in every spelling that a program may follow."""
    places = chain(_in_page(html), _in_text(text), _in_text(page))
    found = dict.fromkeys(islice(places, MAX_LINKS))
    more = [Link("", "", "", "", UNREAD)] if next(places, None) else []
    return [*dict.fromkeys(link for raw in found if (link := _link(*raw))), *more]


_BRACKETS: Final = frozenset("[({")
_STARTS: Final = (
    "www", "mailto:", "magnet:", "tel:", "sms:", "search-ms:", "ms-msdt:", "javascript:", "vbscript:", "data:",
)  # fmt: skip


def _linked(text: str) -> bool:
    """Whether a text can hold a link at all, which most texts cannot: looking for one takes long."""
    if "/" in text or "\\" in text:
        return True
    low = text.lower()
    return any(start in low for start in _STARTS)


def _in_text(text: str) -> Iterator[tuple[str, str, str]]:
    text = plain = visible(text)
    written = dict.fromkeys(found[0] for found in _WRITTEN.finditer(text)) if _linked(text) else {}
    yield from ((raw, "", "") for raw in written)
    signs = (".", "dot", "DOT", ":", "://") if _BRACKETS.intersection(text) else ()
    for sign in signs:
        for fenced in (f"[{sign}]", f"({sign})", f"{{{sign}}}"):
            plain = plain.replace(fenced, sign.lower().replace("dot", "."))
    if plain != text:
        undone = (found[0] for found in _WRITTEN.finditer(plain))
        yield from ((raw, "", "disguised") for raw in undone if raw not in written)
    if "](" in text:
        for found in _MARKDOWN.finditer(text):
            yield found[3], found[2] or "", "loads" if found[1] else ""
    if "]:" in text:
        defined = {found[1].casefold(): found[2] for found in _DEFINED.finditer(text)}
        yield from ((target, label, "") for label, target in defined.items())
        for found in _REFERRED.finditer(text) if defined else ():
            target = defined.get((found[3] or found[2]).casefold(), "")
            yield target, found[2], "loads" if found[1] else ""


def _in_page(html: str) -> Iterator[tuple[str, str, str]]:
    for found in _HREF.finditer(html):
        start = html.find(">", found.end(), found.end() + 20_000) + 1
        end = _CLOSED.search(html, start, start + 2_000)
        label = all_text(html[start : end.start() if end else start + 300]) if start else ""
        yield found[1] or found[2] or found[3] or "", label, ""


def _link(raw: str, label: str, how: str) -> Link | None:
    length, raw = len(raw), "".join(unescaped(raw).split())
    bare = raw.rstrip(".,;:!?'\"*_~)]}>")
    raw = raw[: len(bare) + 1] if "(" in bare and raw[len(bare) :].startswith(")") else bare
    named = _SCHEME.match(raw)
    scheme = named[1].lower() if named else ""
    rest = raw[named.end() :] if named else raw
    if raw.startswith(("\\\\", "//")):
        scheme = "file" if raw[0] == "\\" else "https"
    elif not named:
        name = _BARE.match(raw)
        placed = name and (raw[:4].lower() == "www." or raw[name.end() :][:1] in ("/", ":", "?"))
        if how == "loads" or not name or not placed or name[1].lower() in _FILES:
            return Link("", "", "", label, UNREAD) if length >= MAX_ADDRESS else None
        scheme = "http"
    if re.fullmatch(r"h(?:xx|\*\*|tt)ps?", scheme) and scheme not in WEB:
        scheme, how = "http" + scheme[4:], how or "disguised"
    if scheme == "mailto":
        address = unquote(re.split(r"[?,;]", rest, maxsplit=1)[0])
        return Link(f"mailto:{address}", scheme, ascii_host(address.rpartition("@")[2]), label, how)
    if scheme not in WEB and not rest.startswith(("//", "\\\\")):
        return Link(f"{scheme}:{rest}", scheme, "", label, how)
    rest = rest.lstrip("/\\")
    authority = re.split(r"[/\\?#]", rest, maxsplit=1)[0]
    place = authority.rpartition("@")[2]
    host = ascii_host(place[: place.find("]") + 1] if place[:1] == "[" else place.partition(":")[0])
    target = f"{scheme}://{authority.lower()}{rest[len(authority) :]}"
    return Link(target, scheme, host, label, how) if host else None


_ALIKE: Final = names("LATIN CYRILLIC GREEK ARMENIAN CHEROKEE COPTIC GEORGIAN LISU")
# Below these anybody gets an address. RFC 2606 keeps the first three for examples.
PUBLIC_MAIL: Final = names(
    "example.com example.org example.net gmail.com googlemail.com mail.com ymail.com yahoo.com yahoo.de yahoo.fr "
    "hotmail.com hotmail.de hotmail.fr outlook.com outlook.de live.com gmx.de gmx.net gmx.at gmx.ch gmx.com aol.com"
)


def host_skeleton(text: str) -> str:
    """Return what a host is taken for at a glance, the same for all that look alike."""
    return skeleton(readable(text))


def scripts(word: str) -> set[str]:
    """Return those scripts of a word whose letters look alike."""
    letters = "a" if word.isascii() else filter(str.isalpha, word[:255])
    return {unicodedata.name(char, "").partition(" ")[0] for char in letters} & _ALIKE


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
            public = {domain, its_domain} <= PUBLIC_MAIL and len(look) > 5
            near = look == its_look or (public and _one_edit(look, its_look))
            if near and (domain == its_domain or (public and look == its_look)):
                found = known
        return found

    def lookalike_of(self, host: str) -> tuple[str, bool]:
        """Return the known domain that a host is taken for, and whether more than its ending is alike."""
        mine = site(host.casefold())
        if mine in self.sites or mine in PUBLIC_MAIL:
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

# Each begins with what can be searched fast; bounds and possessive runs keep hostile texts linear.
_EXACT: Final = r"""
A private key       -----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY.{0,300}|PuTTY-User-Key-File-\d.{0,300}
A private key       AGE-SECRET-KEY-1[0-9A-Z]{20,80}+
An AWS key          A(?:KI|SI)A[0-9A-Z]{16}(?![0-9A-Za-z])
A GitHub token      gh[opsru]_[0-9A-Za-z]{36,255}+|github_pat_\w{22,255}+
A GitLab token      glpat-[\w-]{20,64}+
A Slack token       xox[abeoprs]-[0-9A-Za-z-]{10,255}+|xapp-\d-[\w-]{10,255}+|hooks\.slack\.com/services/[\w/]{10,255}+
A Google key        AIza[\w-]{35}|ya29\.[\w-]{20,2000}+|GOCSPX-[\w-]{20,64}+|1//0[\w-]{30,255}+
An Anthropic key    sk-ant-[\w-]{20,255}+
An OpenAI key       sk-(?<![\w-]sk-)(?!ant-)(?=[A-Za-z_-]{0,40}+\d)[\w-]{20,255}+
A Stripe key        [rs]k_(?:live|test)_[0-9A-Za-z]{16,255}+|whsec_[0-9A-Za-z]{20,255}+
An npm token        npm_[0-9A-Za-z]{36}
A PyPI token        pypi-AgE[\w-]{20,255}+
A signed web token  eyJ(?<![\w-]eyJ)[\w-]{8,4000}+\.eyJ[\w-]{4,4000}+[\w.-]{0,4000}+
A long random-looking string  [A-Za-z0-9+_-]{32,}+
A token file        "(?:refresh_token|client_secret|private_key|access_token)"\s{0,9}+:\s{0,9}+"[^"]{8,2000}+
"""
_DIGITS: Final = r"\d(?<![\w-].)(?!(?:(?<=1)9|(?<=2)0)\d\d(?!\d))(?:\d\d[ -]\d{3}|\d{3,7})(?![\w-]|[.,]\d)"  # but a year
_LOOSE: Final = rf"""
A password          (?:password|passwort|kennwort|passphrase|passwd|passcode|pwd(?<!\wpwd)|pw(?<!\wpw)|mot de passe|contraseña|senha|wachtwoord|hasło|lösenord|пароль|密码|密碼|パスワード|비밀번호)["']?(?: [^\W\d]{{1,20}}){{0,4}}?(?:[ \t]{{0,3}}+[:=：]| (is|ist|lautet|est|es)(?=[ \t]))[ \t]{{0,3}}+["'`]?([^\s"'`]{{4,100}}+)
A key               (?:api|secret|access|private|client|auth|refresh)[ _-]?(?:key|token|secret)["']?[ \t]{{0,3}}+[:=][ \t]{{0,3}}+["'`]?(?=[^\s"']{{0,60}}\d)[\w./+=~-]{{16,300}}+
A key               bearer (?=\S{{0,60}}\d)[\w.~+/=-]{{20,2000}}+
A one-time code     (?:verification|security|authentication|auth|login|log-in|sign-in|access|one-time|2fa|mfa|two-factor|sms|recovery|reset|backup)[ -](?:pass)?(?:code|password)(?! review| base)[^\d.;]{{0,40}}?{_DIGITS}
A one-time code     (?:otp(?<!\wotp)(?!\w)|passcode)[^\d.;]{{0,40}}?{_DIGITS}
A one-time code     (?:bestätigungs|sicherheits|einmal|anmelde|zugangs|verifizierungs|verificatie|beveiligings)-?(?:code|passwort)[^\d.;]{{0,40}}?{_DIGITS}
A one-time code     (?:code de (?:vérification|sécurité|connexion)|código de (?:verifica|segur|acces)\w{{0,6}}|codice di (?:verifica|sicurezza|accesso)|kod weryfikacyjny|код (?:подтверждения|проверки|доступа)|验证码|驗證碼|認証コード|確認コード|인증번호|인증 코드)[^\d.;]{{0,40}}?{_DIGITS}
A one-time code     (?:your|my|the|ihr|dein|votre|su|tu) (?:pin|code)(?: is| ist| lautet| est| es)?[^\w.;]{{1,4}}{_DIGITS}
A one-time code     {_DIGITS}\s{{1,4}}(?:is|ist|est|es|是)\s{{0,4}}(?:your|ihr|dein|votre|tu|su|您的|你的)[^\d.;]{{0,30}}?(?:(?<!\w)(?:code|otp|passcode|pin)(?!\w)|验证码)
A payment card      [2-6](?<![\d.+-].)(?:(?:(?<=4)\d|(?<=5)[1-5]|(?<=2)[2-7]|(?<=3)5|(?<=6)[0245])\d\d([ \xa0.-]?)\d{{4}}\1\d{{4}}\1\d{{4}}|(?<=3)[47]\d\d([ \xa0.-]?)\d{{6}}\2\d{{5}})(?![\d-])
An IBAN             [a-z](?<![a-z0-9].)[a-z][0-9]{{2}}[ \xa0-]?[a-z0-9](?:[ \xa0-]?[a-z0-9]){{10,32}}+
A US social security number  [0-8](?<![\w-].)(?<!000)\d\d(?<!000)(?<!666)-(?!00)\d\d-(?!0000)\d{{4}}(?![\w-])
"""
_IBAN_LENGTHS: Final = {
    entry[:2]: int(entry[2:])
    for entry in names(
        "at20 be16 bg22 ch21 cy28 cz24 de22 dk18 ee20 es24 fi18 fr27 gb22 gr27 hr21 hu28 ie22 is26 it27 li21 lt20 lu20 "
        "lv21 mc27 mt31 nl18 no15 pl28 pt25 ro24 se24 si19 sk24 tr26 ae23 sa24 il23 ua29 br29 rs22 ba20 mk19 al28 kw30"
    )
}
_CHANGE: Final = re.compile(r"[a-z](?=[A-Z0-9])|[A-Z](?=[0-9]|[a-z][A-Z0-9])|[0-9](?=[A-Za-z])")


def _password(found: re.Match[str]) -> bool:
    value = found[2].rstrip(".,;:!?)")
    blank = value[:1] in "<[{($*•…" or "://" in value or set(value) <= set("x.-_")
    # A word of letters is one only where nothing follows: "password: swordfish", not "password: ask me".
    alone = not found[1] and found.string[found.end() : found.end() + 1] in ("", "\n")
    return len(value) > 3 and not blank and (alone or any(char.isdigit() for char in value))


def _luhn(found: re.Match[str]) -> bool:
    digits = [*map(int, filter(str.isdecimal, found[0]))]
    doubled = sum(2 * digit - 9 * (digit > 4) for digit in digits[-2::-2])
    return (sum(digits[::-2]) + doubled) % 10 == 0 and len(set(digits)) > 1


def _mod_97(found: re.Match[str]) -> bool:
    number = re.sub(r"[ \xa0-]", "", found[0])[: _IBAN_LENGTHS.get(found[0][:2], 0)]
    turned = "".join(str(int(char, 36)) for char in number[4:] + number[:4])
    return len(number) >= 15 and int(turned) % 97 == 1


def _random(found: re.Match[str]) -> bool:
    word = found[0][:200]
    mixed = not word.islower() and not word.isupper() and re.search("[0-9]", word)
    return bool(mixed) and len(set(word)) > 15 and len(_CHANGE.findall(word)) * 4 >= len(word)


@cache  # they take a while to compile, and most commands never ask
def _rules(table: str) -> list[tuple[str, re.Pattern[str], Callable[[re.Match[str]], bool]]]:
    checks = {"A password": _password, "A payment card": _luhn, "An IBAN": _mod_97, RANDOM: _random}
    rows = (re.split(r"\s{2,}", row, maxsplit=1) for row in table.strip().split("\n"))
    return [(what, re.compile(rule, re.DOTALL), checks.get(what, bool)) for what, rule in rows]


def _lowered(text: str) -> str:
    """Return the text in lower case, each character at its place."""
    low = text.lower()
    return low if len(low) == len(text) else "".join(c.lower()[:1] for c in text)


def _spans(text: str) -> Iterator[Iterator[tuple[str, int, int]]]:
    low = _lowered(text)
    for source, table in ((text, _EXACT), (low, _LOOSE)):
        for what, rule, check in _rules(table):
            hits = filter(check, rule.finditer(source))
            yield ((what, found.start(), found.end()) for found in hits)


def secrets(text: str) -> set[str]:
    """Return what kinds of secrets a text seems to hold."""
    return {what for spans in _spans(visible(text)) for what, _, _ in islice(spans, 1)}


def masked(text: str, *, unsure: bool = True) -> str:
    """Return a short text with its secrets covered, those too that only may be one."""
    # One that was grown together with another is seen when that is gone.
    for _ in range(MAX_COVERS):
        spans = chain.from_iterable(_spans(text))
        sure = ((start, end) for what, start, end in spans if unsure or what != RANDOM)
        hidden = {at for start, end in sure for at in range(start, end)}
        if not hidden:
            break
        covered = "".join("\0" if at in hidden else char for at, char in enumerate(text))
        text = re.sub("\0+", "[secret]", covered)
    return text


_ADDRESS: Final = re.compile(
    r"(?<![\w.%+-])[\w.%+-]{0,64}+@(?:[^\W_][\w-]{0,62}+\.){1,40}[^\W\d_](?:-{0,2}[^\W_]){1,62}+"
)
_SPELLED: Final = re.compile(r"\s?[\[({]\s?(?:(at|@)|dot|\.)\s?[\])}]\s?", re.IGNORECASE)
_SIGNS: Final = str.maketrans("＠﹫。．｡․﹒", "@@.....")
_CODE_WORD: Final = re.compile(
    r"code(?<!zip.code)(?<!post.code)(?<!postcode)(?<!postal.code)(?<!area.code)(?<!country.code)(?<!error.code)"
    r"(?<!promo.code)(?<!source.code)(?<!qr.code)(?! of)|otp|pin(?<!\wpin)(?!\w)|tan(?<!\wtan)(?!\w)"
    r"|password|passwort|kennwort|código|codice|kod |код|验证码|驗證碼|認証|確認コード|인증"
)
_CODE: Final = re.compile(
    r"(?<![\w-])(?!(?:19|20)\d\d(?!\d))(?=[a-z]{0,9}-?\d)(?:[a-z]-)?+(\d{3}[ -]\d{3}|[a-z0-9]{4,10})(?![\w-])"
)
LONGEST_CODE: Final = 12
_NUMBER: Final = re.compile(
    r"(?<![\w,-])(?<!\d\.)(?:[a-z]{2}\d\d(?:[ .-]?[a-z0-9]{4}){2,7}+(?:[ .-]?[a-z0-9]{1,3})?"
    r"|(?!(?:19|20)\d{6}(?!\d))(?:\d{8,20}|\d{3,6}(?:[./]\d{3,7}){2,4}|\d{3,6}(?:[ -]\d{3,7}){1,4}))(?![\w-])"
)
_GROUPED: Final = re.compile("[ ./-]")
# Digits, spaces and hyphens that are printed instead of those of a keyboard.
_PRINTED: Final = str.maketrans(
    "０１２３４５６７８９\xa0\u2002\u2003\u2007\u2009\u200a\u202f\u3000\u2010\u2011\u2012\u2013\u2014\u2212",
    "0123456789        ------",
)
_TWO_DIGITS: Final = re.compile(r"\d\d")


def codes(text: str, *, anywhere: bool) -> Iterator[str]:
    """Return `code:` and `number:` tokens; a code counts near a word that says so, or anywhere."""
    low = _lowered(text).translate(_PRINTED)
    near = islice(_CODE_WORD.finditer(low), MAX_TOKENS)
    windows = [(0, len(low))] if anywhere else [(w.start() - 40, w.end() + 60) for w in near]
    for start, end in windows:
        # A code that begins within the window is read to its end.
        for code in _CODE.finditer(low, max(0, start), end + LONGEST_CODE + 1):
            if code.start() < end:
                yield "code:" + code[1].replace(" ", "").replace("-", "")
    for number in _NUMBER.finditer(low) if _TWO_DIGITS.search(low) else ():
        yield "number:" + _GROUPED.sub("", number[0])


def _addresses(text: str) -> Iterator[str]:
    """Yield the addresses in a text: as they stand, and with what stands for a sign undone."""
    undone = _SPELLED.sub(lambda found: "@" if found[1] else ".", text.translate(_SIGNS))
    undone = unquote(unescaped(undone))
    for one in (text, undone) if undone != text else (text,):
        for found in _ADDRESS.finditer(one) if "@" in one else ():
            yield address_key(unicodedata.normalize("NFKC", found[0]))


def tokens(text: str, html: str = "", *, most: int = MAX_TOKENS) -> frozenset[str]:
    """Return what could have been taken from a text: addresses, links, `host:`, `code:`, `number:`."""
    page = all_text(html)
    body = f"{visible(text)}\n{page}"
    people = (key for one in _addresses(body) for key in (one, one.lstrip("_.-")))
    linked = links(text, html, page)
    leads = (part for a in linked for part in (a.target, a.host and f"host:{a.host}"))
    taken: set[str] = {""}
    # Each kind has its share: a mail full of addresses must not push its links out.
    for share, kind in enumerate((people, leads, codes(body, anywhere=False)), 1):
        while len(taken) < most * share // 3 and (token := next(kind, None)) is not None:
            taken.add(token)
    return frozenset(taken - {""})
