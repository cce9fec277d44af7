"""Quoted history: told from what a mail adds, in many languages, and never lost."""

from hypothesis import given
from hypothesis import strategies as st

from postroom.core.mail_view import split_quoted
from tests.cases import for_each
from tests.conftest import size
from tests.growth import assert_linear

SAID = "> what was said\n> before\n"

ATTRIBUTIONS = [
    "On Mon, Jan 1, 2024 at 10:00 AM Ann Example <ann@example.org> wrote:",
    "On Mon, Jan 1, 2024 at 10:00 AM Ann Example <ann@example.org>\nwrote:",
    "On Mon, 1 Jan 2024 at 10:00, a person with a long name\n<ann.with.a.long.name@example.org>\nwrote:",
    "On 1/1/24 10:00 AM, Ann wrote:",
    "Ann Example writes:",
    "Am 01.01.2024 um 10:00 schrieb Ann Example <ann@example.org>:",
    "Le lun. 1 janv. 2024 à 10:00, Ann Example <ann@example.org> a écrit :",
    "El lun, 1 ene 2024 a las 10:00, Ann (<ann@example.org>) escribió:",
    "Em seg., 1 de jan. de 2024 às 10:00, Ann <ann@example.org> escreveu:",
    "Il giorno lun 1 gen 2024 alle ore 10:00 Ann <ann@example.org> ha scritto:",
    "Op ma 1 jan 2024 om 10:00 schreef Ann <ann@example.org>:",
    "Den mån 1 jan. 2024 kl 10:00 skrev Ann <ann@example.org>:",
    "pon., 1 sty 2024 o 10:00 Ann <ann@example.org> napisał(a):",
    "пн, 1 янв. 2024 г. в 10:00, Ann <ann@example.org>:",
    "Ann <ann@example.org> 于2024年1月1日周一 10:00写道：",
    "2024年1月1日(月) 10:00 Ann <ann@example.org>:",
]


@for_each("attribution", ATTRIBUTIONS)
@for_each("gap", ["", "\n"])
def test_an_answer_above_a_quotation_is_what_is_new(attribution: str, gap: str) -> None:
    fresh = "Yes, gladly.\n\nBob\n\n"
    quoted = f"{attribution}\n{gap}{SAID}"
    assert split_quoted(fresh + quoted) == (fresh, quoted)


def test_an_answer_directly_above_its_attribution_is_kept_whole() -> None:
    quoted = f"{ATTRIBUTIONS[0]}\n{SAID}"
    assert split_quoted(f"Thanks!\n{quoted}") == ("Thanks!\n", quoted)


def test_history_that_no_mark_quotes_is_history() -> None:
    quoted = f"{ATTRIBUTIONS[0]}\n\nShall we meet?\n\nAnn\n"
    assert split_quoted(f"Yes.\n\n{quoted}") == ("Yes.\n\n", quoted)


@for_each(
    "block",
    [
        "-----Original Message-----\nFrom: Ann\nSubject: x\n\nwords",
        "-----Ursprüngliche Nachricht-----\nwords",
        "-------- Message d'origine --------\nwords",
        "-----Mensaje original-----\nwords",
        "-----原始邮件-----\nwords",
        "From: Ann <ann@example.org>\nSent: Monday, January 1, 2024 10:00 AM\nTo: Bob\nSubject: x\n\nwords",
        "________________________________\nFrom: Ann\nSent: Monday\nTo: Bob\nCc: Carol\nSubject: x\n\nwords",
        "*From:* Ann\n*Sent:* Monday\n*To:* Bob\n*Subject:* x\n\nwords",
        "Von: Ann\nGesendet: Montag, 1. Januar 2024 10:00\nAn: Bob\nBetreff: x\n\nwords",
        "De : Ann\nEnvoyé : lundi 1 janvier 2024 10:00\nÀ : Bob\nObjet : x\n\nwords",
        "发件人: Ann\n发送时间: 2024年1月1日\n收件人: Bob\n主题: x\n\nwords",
    ],
)
def test_outlooks_ways_of_quoting_are_known(block: str) -> None:
    assert split_quoted(f"Agreed.\n\n{block}") == ("Agreed.\n\n", block)


def test_a_quotation_without_attribution_at_the_end_is_history() -> None:
    assert split_quoted(f"Yes.\n{SAID}\n") == ("Yes.\n", f"{SAID}\n")


@for_each("footer", ["-- \nBob\n", "____________________\nTalk mailing list\n"])
def test_a_signature_or_footer_below_the_quotation_does_not_hide_it(footer: str) -> None:
    assert split_quoted(f"Yes.\n\n{SAID}\n{footer}") == ("Yes.\n\n", f"{SAID}\n{footer}")


@for_each(
    "text",
    [
        f"{ATTRIBUTIONS[0]}\n> one?\nYes.\n> two?\nNo.\n",
        "> one?\nYes, one.\n",
        f"Hello,\n\n{SAID}\nI agree.\n\n{SAID}",
        "See below.\n\n---------- Forwarded message ---------\nFrom: Ann\nDate: Monday\nSubject: x\nTo: Bob\n\nwords\n",
        "FYI\n\nBegin forwarded message:\n\nFrom: Ann\nSubject: x\nDate: Monday\n\n> quoted inside\n",
        "On page 3 of 2024's report he wrote:\nnothing of that kind.\n",
        "From: the start\nit went well.\n",
        "Just words, and no history at all.",
        SAID,
        "",
        "\n\n",
    ],
)
def test_where_nothing_is_clearly_history_all_is_new(text: str) -> None:
    assert split_quoted(text) == (text, "")


LINES = [*ATTRIBUTIONS, *SAID.splitlines(), "words", "", "-- ", "From: a", "Sent: b", "To: c", "Subject: d",
         "-----Original Message-----", "---------- Forwarded message ---------", "_" * 30]  # fmt: skip


@given(
    st.lists(st.one_of(st.sampled_from(LINES), st.text(max_size=30)), max_size=30).map("\n".join)
)
def test_nothing_is_ever_lost(text: str) -> None:
    fresh, quoted = split_quoted(text)
    assert fresh + quoted == text


def check_nothing_is_lost(text: str) -> None:
    assert "".join(split_quoted(text)) == text


@for_each(
    ("piece", "end"),
    [
        ("On 1 ", ""),
        ("On 1\n", ""),
        ("From: a\n", ""),
        ("> \nx\n", ""),
        ("<", ":"),
        ("<a@" * 100 + ":\n", ""),
        ("-", ""),
        ("\n", ""),
    ],
)
def test_hostile_texts_take_linear_time(piece: str, end: str) -> None:
    assert_linear(check_nothing_is_lost, lambda n: piece * (n // len(piece)) + end, size(250_000))
