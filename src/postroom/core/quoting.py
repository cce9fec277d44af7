"""What a mail adds, told apart from the history that it quotes."""

from __future__ import annotations

import re
from typing import Final

MAX_LINE: Final = 400  # characters of a line that is looked at; an attribution is shorter
BLOCK: Final = 6  # lines in which the headers of an Outlook quotation stand

_VERBS: Final = (
    r"wrote|writes|schrieb|schreibt|a écrit|écrit|escribió|escreveu|ha scritto|scrive|schreef"
    r"|skrev|skriver|kirjoitti|napisał(?:\(a\)|a)?|napsala?|napísala?|írta|yazdı|написала?|пишет|писав|έγραψε"
    r"|写道|寫道|のメール|님이 작성"
)
_VERB: Final = re.compile(rf"(?:\b|\d)(?:{_VERBS})", re.IGNORECASE)
_OPENER: Final = re.compile(
    r"(?:on|am|le|el|em|il|op|den|dne|dnia|w dniu|på|ma|στις|в|у)\b|于|在", re.IGNORECASE
)
_MAILBOX: Final = re.compile(r"[<(\[][^<>()\[\]\s]{1,100}@[^<>()\[\]\s]{1,200}[>)\]]")
_YEAR: Final = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)|\d{1,2}[./]\d{1,2}[./]\d\d(?!\d)")
_CLOCK: Final = re.compile(r"\d{1,2}[:.h]\d\d")
_ORIGINAL: Final = re.compile(
    r"-{2,}\s?(?:original message|ursprüngliche nachricht|original-?nachricht|message d[’']origine"
    r"|message original|mensaje original|mensagem original|messaggio originale|oorspronkelijk bericht"
    r"|originalmeddelande|ursprungligt meddelande|opprinnelig melding|oprindelig meddelelse"
    r"|alkuperäinen viesti|wiadomość oryginalna|oryginalna wiadomość|původní zpráva|eredeti üzenet"
    r"|orijinal ileti|исходное сообщение|原始邮件|原始郵件|元のメッセージ|원본 메시지)\s?-{2,}",
    re.IGNORECASE,
)
_FORWARDED: Final = re.compile(
    r"-{2,}\s?(?:forwarded message|weitergeleitete nachricht|message transféré|mensaje reenviado"
    r"|mensagem encaminhada|messaggio inoltrato|forwarded by|doorgestuurd bericht"
    r"|vidarebefordrat meddelande|videresendt|пересылаемое сообщение|转发的邮件)"
    r"|(?:begin forwarded message|anfang der weitergeleiteten nachricht|début du message réexpédié"
    r"|inicio del mensaje reenviado|inizio messaggio inoltrato)\s?:",
    re.IGNORECASE,
)


def _label(names: str) -> re.Pattern[str]:
    return re.compile(rf"\*?(?:{names})\s?\*?\s?[:：]", re.IGNORECASE)


_FROM: Final = _label(
    "from|von|de|da|van|från|fra|lähettäjä|od|от|feladó|kimden|发件人|寄件者|差出人|보낸 사람"
)
_SENT: Final = _label(
    "sent|date|gesendet|datum|envoyé|enviado(?: el)?|enviada(?: em)?|fecha|data|inviato|verzonden"
    "|skickat|sendt|dato|lähetetty|wysłano|odesláno|отправлено|дата|elküldve|gönderildi"
    "|发送时间|日期|寄件日期|送信日時|보낸 날짜"
)
_TO: Final = _label(
    "to|an|à|para|a|aan|till|til|vastaanottaja|do|komu|кому|címzett|kime|收件人|收件者|宛先|받는 사람"
)
_SUBJECT: Final = _label(
    "subject|betreff|objet|asunto|assunto|oggetto|onderwerp|ämne|emne|aihe|temat|předmět|тема|tárgy|konu"
    "|主题|主旨|件名|제목"
)
_RULE: Final = re.compile(r"[_\-—]{5,}")
_FOOTER: Final = re.compile(r"--|[_]{10,}")  # a signature, or what a list adds below all


def split(text: str) -> tuple[str, str]:
    """Return what is new and what is quoted; together they are the text.

    Answers between quoted lines make the whole mail new, and so does forwarding.
    """
    lines = text.split("\n")
    shown = [line[:MAX_LINE].strip() for line in lines]
    cut = _find(shown)
    if cut is None or not any(shown[:cut]):
        return text, ""
    place = sum(len(line) + 1 for line in lines[:cut])
    return text[:place], text[place:]


def _find(shown: list[str]) -> int | None:
    """Return the line at which history begins, if it then goes on to the end."""
    last_quoted = max((at for at, line in enumerate(shown) if line.startswith(">")), default=-1)
    last_new = _last_new(shown, last_quoted)
    for at, line in enumerate(shown):
        if not line:
            continue
        if _FORWARDED.match(line):
            return None
        if _ORIGINAL.match(line) or _is_header_block(shown, at):
            return _with_rule(shown, at)
        if line.startswith(">"):
            return at if last_new < at else None
        length = _attribution(shown, at, quoted=last_quoted > at)
        if length:
            # Quoted line by line, or all that follows as it was.
            return at if last_quoted < at or last_new < at + length else None
    return None


def _last_new(shown: list[str], last_quoted: int) -> int:
    """Return the last line that is neither quoted nor empty nor a footer below the quotation."""
    end = len(shown)
    if last_quoted >= 0:
        below = range(last_quoted + 1, end)
        first = next((at for at in below if shown[at]), end)
        end = first if first < end and _FOOTER.fullmatch(shown[first]) else end
    return max((at for at in range(end) if shown[at] and not shown[at].startswith(">")), default=-1)


def _with_rule(shown: list[str], at: int) -> int:
    above = next((i for i in range(at - 1, max(-1, at - 3), -1) if shown[i]), None)
    return above if above is not None and _RULE.fullmatch(shown[above]) else at


def _is_header_block(shown: list[str], at: int) -> bool:
    """Whether Outlook's way of quoting begins here: From, Sent, To and Subject, line by line."""
    if not _FROM.match(shown[at]):
        return False
    below = [line for line in shown[at + 1 : at + 1 + BLOCK] if line]
    subject = any(_SUBJECT.match(line) for line in below)
    return subject and any(_SENT.match(line) or _TO.match(line) for line in below)


def _attribution(shown: list[str], at: int, *, quoted: bool) -> int:
    """Return over how many lines somebody is said to have written what follows; 0 for none."""
    if _attributes(shown[at], quoted=quoted and _next_is_quoted(shown, at + 1)):
        return 1
    # Wrapped by the sender's program: then the first line has the date.
    if not (_OPENER.match(shown[at]) and any(char.isdigit() for char in shown[at])):
        return 0
    joined = shown[at]
    for more in range(1, 3):
        following = shown[at + more] if at + more < len(shown) else ""
        if not following or following.startswith(">"):
            return 0
        joined = f"{joined} {following}"
        if _attributes(joined, quoted=quoted and _next_is_quoted(shown, at + more + 1)):
            return more + 1
    return 0


def _attributes(line: str, *, quoted: bool) -> bool:
    if len(line) > MAX_LINE or not line.endswith((":", "：")):
        return False
    verb, mailbox, year = _VERB.search(line), _MAILBOX.search(line), _YEAR.search(line)
    if quoted:
        return bool(verb or (mailbox and year))
    # Nothing marks what follows as quoted: the line must be beyond doubt.
    return bool(year and _CLOCK.search(line) and (verb or mailbox))


def _next_is_quoted(shown: list[str], at: int) -> bool:
    following = next((line for line in shown[at : at + 3] if line), "")
    return following.startswith(">")
