"""Findings: links in every spelling, secrets that are secrets, tokens that a mail gives, in linear time."""

from postroom.core.letter import MAX_TEXT
from postroom.review.links import (
    MAX_LINKS,
    all_text,
    ascii_host,
    host_in_label,
    links,
    readable,
    site,
)
from postroom.review.tokens import LONGEST_CODE, MAX_TOKENS, RANDOM, codes, masked, secrets, tokens
from tests.cases import for_each
from tests.conftest import size
from tests.growth import assert_linear

LINKS = {
    "https://Example.COM/Path?x=1#y": "https://example.com/Path?x=1#y",
    "(see https://example.com/a).": "https://example.com/a",
    "https://example.com/a_(b)": "https://example.com/a_(b)",
    "<https://example.com/a>": "https://example.com/a",
    "*https://example.com/a*": "https://example.com/a",
    "ftp://example.com/a": "ftp://example.com/a",
    "end.https://example.com/a": "https://example.com/a",
    "日本https://example.com/a": "https://example.com/a",
    "1https://example.com/a": "https://example.com/a",
    "www.example.com": "http://www.example.com",
    "WWW.Example.com/a": "http://www.example.com/a",
    "example.com/a": "http://example.com/a",
    "EXAMPLE.COM/a": "http://example.com/a",
    "example.com:8080/a": "http://example.com:8080/a",
    "mailto:ann@example.com?subject=x": "mailto:ann@example.com",
    "tel:+491234": "tel:+491234",
    "hxxp://example.com/a": "http://example.com/a",
    "hXXps://example.com/a": "https://example.com/a",
    "https[:]//example[.]com/a": "https://example.com/a",
    "example(.)com/a": "http://example.com/a",
    "[x](https://example.com/a 'title')": "https://example.com/a",
    "[x](<https://example.com/a>)": "https://example.com/a",
    "[x](//example.com/a)": "https://example.com/a",
    "[x]: https://example.com/a": "https://example.com/a",
    "> [x]:\n> https://example.com/a": "https://example.com/a",
    "https://xn--mller-kva.de/": "https://xn--mller-kva.de/",
    "ssh://host/a": "ssh://host/a",
    "magnet:?xt=urn:btih:abc": "magnet:?xt=urn:btih:abc",
}


@for_each(("text", "target"), LINKS.items())
def test_a_link_is_found_in_every_spelling(text: str, target: str) -> None:
    assert target in {
        link.target for link in links(f"So {text} it is" if text[0] not in "[>" else text)
    }


@for_each(
    "text",
    ["e.g. this", "file.py", "Mr.Smith", "Mr.Smith/Mrs.Jones", "example.com", "and/or", "v1.2/3.4"]
    + [
        "ann@example.com",
        "src/file.py/x",
        "setup.py/run",
        "10.0.0.0/8",
        "3.14/2",
        "C:\\a\\b",
        "a::b",
    ]
    + ["Note:this", "12:30", "Re: Fwd: x", "[1]: annex", "[x](notes.md)", "[^1]: https", "http://"]
    + ["JavaScript:fun", "data:5", "text/html", "U.S./EU", "[a][b]", "std::cout<<x"],
)
def test_what_is_no_link_is_not_taken_for_one(text: str) -> None:
    assert not links(text)


@for_each(
    ("host", "registered"),
    [("a.b.example.com", "example.com"), ("a.example.co.uk", "example.co.uk"), ("com", "com")]
    + [("a.ann.github.io", "ann.github.io"), ("example.com", "example.com"), ("", "")],
)
def test_a_site_is_what_somebody_registered(host: str, registered: str) -> None:
    assert site(host) == registered


def test_hosts_are_compared_in_one_spelling() -> None:
    assert ascii_host("MÜLLER.de.") == "xn--mller-kva.de"
    assert ascii_host("ｅxample。com") == "example.com"
    assert ascii_host("%65xample.com") == "example.com"
    assert readable("xn--mller-kva.de") == "müller.de"
    assert readable("xn--\u00e9.de") == "xn--é.de"
    assert readable("xn--999999999.de")
    assert ascii_host(f"{'a' * 70}.com") == f"{'a' * 70}.com"


@for_each(
    ("label", "host"),
    [("Go to www.example.com", "www.example.com"), ("https://a.example/x", "a.example")]
    + [("ann@example.com", "example.com"), ("Example.COM", "example.com"), ("x.de", "x.de")]
    + [("report.pdf", ""), ("file.py", ""), ("Node.js", ""), ("Mr.Smith", ""), ("Click here", "")],
)
def test_a_links_text_shows_a_host_only_if_a_reader_takes_it_for_one(label: str, host: str) -> None:
    assert host_in_label(label) == host


def test_the_words_of_a_page_are_joined_as_they_are_read() -> None:
    assert (
        all_text("co<b>de</b>: 12<wbr>34<p>x</p>&amp;&#0065;<!-- y -->").split()
        == "code: 1234 x &A".split()
    )


@for_each("before", ["<a<a>", "<a<b>", "<p <a href=x>", "<!<i>", "</<b></b>"])
def test_a_tag_that_another_begins_in_hides_no_words(before: str) -> None:
    page = f"{before} https://evil.org/a <"
    assert all_text(page).split() == ["https://evil.org/a", "<"]
    assert [link.host for link in links("", page, all_text(page))] == ["evil.org"]


A = "AbCdEf0123456789"
SECRETS = {
    "A private key": [
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE",
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN OPENSSH PRIVATE KEY-----",
        "-----BEGIN PGP PRIVATE KEY BLOCK-----",
        "PuTTY-User-Key-File-2: ssh-rsa",
        f"AGE-SECRET-KEY-1{'Q' * 58}",
    ],
    "An AWS key": ["AKIAIOSFODNN7EXAMPLE", "id=ASIAIOSFODNN7EXAMPLE."],
    "A GitHub token": [f"ghp_{A * 2}abcd", f"gho_{A * 2}abcd", f"github_pat_{A}_{A}"],
    "A GitLab token": [f"glpat-{A}abcd"],
    "A Slack token": [f"xoxb-123456789012-{A}", f"https://hooks.slack.com/services/T000/B000/{A}"],
    "A Google key": [f"AIza{A * 2}abc", f"ya29.{A}abcdef", f"GOCSPX-{A}abcdef", f"1//0{A * 2}"],
    "An OpenAI key": [f"sk-{A * 3}", f"sk-proj-{A * 2}"],
    "An Anthropic key": [f"sk-ant-api03-{A * 2}"],
    "A Stripe key": [f"sk_live_{A}abcd", f"rk_test_{A}abcd", f"whsec_{A}abcd"],
    "An npm token": [f"npm_{A * 2}abcd"],
    "A PyPI token": [f"pypi-AgEIcHlwaS5vcmc{A}"],
    "A signed web token": ["eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N"],
    "A token file": ['{"refresh_token": "1//abcdefgh"}', '{ "client_secret" :\n "abcdefghij" }'],
    "A password": [
        "password: hunter2",
        "Password:swordfish",
        "passwd=hunter2",
        'password = "Tr0ub4dor&3"',
        "Passwort: geheim1",
        "Kennwort: geheim1",
        "Mot de passe : secret1",
        "contraseña: secreto1",
        "пароль: секрет1",
        "密码：abc12345",
        "Password for the portal: hunter2",
        "The Wi-Fi password is hunter2",
        "pw: hunter2",
    ],
    "A key": [
        f"api_key={A}",
        f"API key: {A}",
        f"client-secret: {A}",
        f"Authorization: Bearer {A}{A}",
    ],
    "A one-time code": [
        "Your verification code is 482913",
        "Your verification code is:\n\n482 913",
        "482913 is your Example verification code",
        "OTP: 482913",
        "Your one-time password is 4829",
        "passcode 48291",
        "login code - 482-913",
        "Your code is 4829",
        "my PIN: 4829",
        "Ihr Bestätigungscode lautet 482913",
        "Votre code de vérification : 482913",
        "Su código de verificación es 482913",
        "Il codice di verifica è 482913",
        "Код подтверждения: 482913",
        "您的验证码是482913。".replace("是", "是 "),
        "認証コード: 482913",
        "인증번호 482913",
    ],
    "A payment card": [
        "4111 1111 1111 1111",
        "4111111111111111",
        "5500-0000-0000-0004",
        "3782 822463 10005",
        "card:6011111111111117.",
        "2223003122003222",
    ],
    "An IBAN": [
        "DE89 3704 0044 0532 0130 00",
        "DE89370400440532013000",
        "GB82 WEST 1234 5698 7654 32 BIC WESTGB",
        "iban nl91abna0417164300",
        "NO93 8601 1117 947",
    ],
    "A US social security number": ["123-45-6789", "SSN: 078-05-1120."],
    RANDOM: ["kJ8sQ2mXv9Lp4RtZ7wYb3NcF6hGd1TaE", "Zx8_kJ8sQ2mXv9Lp4-RtZ7wYb3NcF6hGd1Ta"],
}


@for_each(("kind", "text"), [(kind, text) for kind, texts in SECRETS.items() for text in texts])
def test_a_secret_is_known_by_its_kind(kind: str, text: str) -> None:
    assert kind in secrets(f"Hello,\n{text}\n")


@for_each(
    "text",
    ["task-force-one-two-three-2024-planning", "risk-assessment-for-the-year-2024", "akia"]
    + ["AKIA IOSFODNN7EXAMPLE", "ghp_short", "-----BEGIN CERTIFICATE-----", "eyJ.eyJ", "sk-ipped"]
    + ["password: ********", "password: <yours>", "password: [redacted]", "Password: see below"]
    + ["The password is correct.", "the password is expired", "password: https://example.com/reset"]
    + ["Forgot your password? Call 555123", "Boarding pass: ABC123", "password:\n\nBest,\nAnn"]
    + ["4111 1111 1111 1112", "Order 4111-1111", "+49 151 12345678", "0000 0000 0000 0000"]
    + ["1234567890123456789012", "DE89 3704 0044 0532 0130 01", "IN24 hours we will answer all"]
    + ["000-12-3456", "666-12-3456", "900-12-3456", "123-00-4567", "123-45-67890", "212-555-0123"]
    + [
        "the year 2024",
        "Your code of conduct 2024",
        "PIN 560001",
        "zip code 94105",
        "error code 40412",
    ]
    + ["access code review of 4821 lines", "1234 is your shipping number", "verification in 2024"]
    + ["3f2a9c1d8e7b6a5f4c3d2e1f0a9b8c7d6e5f4a3b", "Quarterly-Report-2024-Final-Version-for-Review"]
    + ["ThisIsALongCamelCaseNameOfAClassInJava", "_" * 60, "=" * 80, "a" * 100, "1" * 100]
    + ["123e4567-e89b-12d3-a456-426614174000", "API key rotation is due", "bearer of bad news"],
)
def test_what_is_no_secret_is_not_taken_for_one(text: str) -> None:
    assert not secrets(f"Hello,\n{text}\n")


@for_each("text", [text for texts in SECRETS.values() for text in texts])
def test_a_masked_text_holds_no_secret(text: str) -> None:
    covered = masked(f"<{text}>")
    assert "[secret]" in covered
    assert not secrets(covered)


def test_a_masked_text_keeps_the_rest() -> None:
    assert masked("from AKIAIOSFODNN7EXAMPLE to you") == "from [secret] to you"
    assert masked("nothing here") == "nothing here"
    assert masked(A * 4, unsure=False) == A * 4


def test_tokens_are_what_a_mail_could_give() -> None:
    text = "Write to Ann.Smith+x@Example.COM or see HTTPS://Evil.org/A. Your code: G-482913"
    assert tokens(text) == {
        "ann.smith+x@example.com",
        "https://evil.org/A",
        "host:evil.org",
        "code:482913",
    }


def test_tokens_of_a_page_are_those_of_its_words_and_its_links() -> None:
    page = (
        '<a href="https://evil.org/a">x</a> &#97;nn@example.com <td>Code</td><td><b>48</b>2913</td>'
    )
    assert tokens("", page) == {
        "https://evil.org/a",
        "host:evil.org",
        "ann@example.com",
        "code:482913",
    }


def test_an_address_is_found_however_a_mail_spells_it() -> None:
    for text in (
        "ann@evil.example", "_ann@evil.example_", "..ann@evil.example", "ann@evil.example-", "ann＠evil.example", "ann@evil。example",
        "ａnn@evil.example", "ann [at] evil [dot] example", "ann(@)evil(.)example", "ann{AT}evil.example", "ann&#64;evil.example",
        "mailto:%61nn%40evil.example", "x@y.example (at) ann@evil.example", "ann@evil.example(.)com",
    ):  # fmt: skip
        assert "ann@evil.example" in tokens(text), text
    assert f"ann@{'a.' * 30}example" in tokens(f"ann@{'a.' * 30}example")


def test_an_address_of_another_script_has_the_key_of_its_address() -> None:
    assert "ann@xn--mller-kva.de" in tokens("ann@müller.de")


@for_each(
    ("text", "token"),
    [("Your passcode is A1B2C3", "code:a1b2c3"), ("482913 is your OTP", "code:482913")]
    + [("Il codice: 482 913", "code:482913"), ("验证码 482913", "code:482913")]
    + [
        ("Order 123-4567890-1234567", "number:12345678901234567"),
        ("acct 12345678", "number:12345678"),
    ]
    + [("DE89 3704 0044 0532 0130 00", "number:de89370400440532013000")],
)
def test_codes_and_long_numbers_are_tokens(text: str, token: str) -> None:
    assert token in tokens(text)


def test_a_number_is_the_same_token_however_it_is_grouped_and_printed() -> None:
    for text in (
        "123456789012", "1234\xa05678\xa09012", "1234\u202f5678\u202f9012", "1234.5678.9012", "1234/5678/9012", "1234\u20115678\u20119012",
        "1234–5678–9012", "no.123456789012", "１２３４５６７８９０１２",
    ):  # fmt: skip
        assert "number:123456789012" in tokens(f"pay {text} now"), text
    for between in (" ", "\xa0", "-", ".", "\u2009"):
        iban = between.join(("DE89", "3704", "0044", "0532", "0130", "00"))
        assert "number:de89370400440532013000" in tokens(f"to {iban} now"), iban
    assert not tokens("100.000 EUR, 12.11.2026, 2026.11.12, 10/11/2026, INV-2026-0931")


@for_each(
    "text",
    [
        "on 2024-05-12",
        "20240512",
        "zip code 10115",
        "code of conduct 2024",
        "room 482913",
        "page 12",
    ],
)
def test_dates_places_and_numbers_without_a_word_for_it_are_no_tokens(text: str) -> None:
    assert not tokens(text)


def test_a_code_counts_anywhere_where_that_is_asked() -> None:
    assert list(codes("room 482913", anywhere=True)) == ["code:482913"]


@for_each("gap", range(50, 61))
def test_a_code_at_the_end_of_where_it_counts_is_read_whole(gap: int) -> None:
    found = list(codes("password" + "." * gap + " ab12cd34 x", anywhere=False))
    assert found == (["code:ab12cd34"] if gap < 59 else [])
    number = list(codes("password" + "." * gap + " 12345678901234 x", anywhere=False))
    assert number == ["number:12345678901234"]


def test_no_code_is_longer_than_what_is_looked_at() -> None:
    assert "code:" + "1" * 10 in codes("a-" + "1" * (LONGEST_CODE - 2), anywhere=True)


def test_tokens_are_bounded_and_each_kind_has_its_share() -> None:
    text = " ".join(f"a{n}@example.com https://h{n}.org/ 1000{n:05}" for n in range(5_000))
    found = tokens(text)
    assert MAX_TOKENS - 3 <= len(found) <= MAX_TOKENS
    for mark in ("@", "host:", "number:"):
        assert sum(mark in token for token in found) > 300


PIECES = [
    *(
        "a",
        "a ",
        "a.",
        "a@",
        "a@a.",
        "@",
        "a-",
        "a_",
        "a:",
        "1",
        "1 ",
        "1-",
        "123 ",
        "1.",
        "Aa1",
        "\n",
        "é",
        "İ",
    ),
    *(
        "\u200b",
        "a\u200b",
        "ab\u0301",
        "х",
        "日",
        "http://",
        "http://a.b ",
        "://",
        "www.",
        "www.a",
        "hxxp",
        "mailto:",
    ),
    *(
        "javascript:",
        "javascript:a",
        "data:",
        "\\\\a",
        "[",
        "[a](b",
        "[a][b]",
        "[a]: b\n",
        "]:",
        "](",
        "![",
        "\n[",
    ),
    *(
        "[.]",
        "(dot)",
        "<a href=",
        "<a href=x>",
        "<a href='http://a.b'>c</a>",
        'href="',
        'srcset="a,',
        "content=",
        "<",
    ),
    *(
        "<b>",
        "<!--",
        "url(",
        "@import",
        "\\41",
        "&amp;",
        "&#1;",
        "&#0000",
        "&a",
        "eyJ",
        "eyJa.",
        "sk-",
        "sk-a",
    ),
    *(
        "AKIA",
        "ghp_",
        "-----BEGIN ",
        "AIza",
        "1//0",
        "password",
        "password: ",
        "password:a",
        "password a ",
    ),
    *(
        "code",
        "code ",
        "your code is ",
        "otp 1",
        "123456 is your ",
        "bearer ",
        "api key: a",
        '"refresh_token": "',
    ),
    *("4111 1111 1111 1112 ", "de89 3704 0044 0532 0130 01 ", "de89", "aB1xY2zW9" * 3 + "aaaaaa "),
]


def search(text: str) -> None:
    secrets(text)
    assert len(tokens(text, text)) <= MAX_TOKENS


@for_each("piece", PIECES)
def test_a_hostile_text_is_read_in_linear_time(piece: str) -> None:
    assert_linear(search, lambda n: (piece * n)[:n], size(60_000))


@for_each("piece", ["4111 1111 1111 1112 ", "<a href=x>", "a."])
def test_the_longest_hostile_text_is_read_to_its_end(piece: str) -> None:
    end = " -----BEGIN PRIVATE KEY-----\n"
    text = (piece * MAX_TEXT)[: MAX_TEXT - len(end)] + end
    assert len(links(text, text)) <= MAX_LINKS + 1
    assert any("private key" in what for what in secrets(text))


def test_two_secrets_grown_together_are_both_covered() -> None:
    grown = "4111111111111111DE89370400440532013000"
    assert secrets(masked(grown)) - {RANDOM} == set()
    assert "DE89" not in masked(grown)
