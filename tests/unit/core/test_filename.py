"""Names of files that came by mail."""

import unicodedata

from hypothesis import example, given
from hypothesis import strategies as st

from postroom.core.text import DOWNLOAD, PASSIVE, file_name, numbered
from tests.cases import for_each


@for_each(
    ("name", "saved"),
    [
        ("report.pdf", "report.pdf"),
        ("Büro 2026.PDF", "Büro 2026.PDF"),
        ("a/b\\c.txt", "a_b_c.txt"),
        ("..", "attachment.download"),
        ("", "attachment.download"),
        ("con", "_con.download"),
        ("LPT1.tar.pdf", "_LPT1.tar.pdf"),
        ("invoice.pdf.exe", "invoice.pdf.exe.download"),
        ("x.svg", "x.svg.download"),
        ("x.pdf\u202efdp.exe", "x.pdffdp.exe.download"),
        ("[[link]]#^x|y.txt", "__link____x_y.txt"),
        ("~$a.docx", "$a.docx"),
        ("a.txt.", "a.txt"),
        ("x.canvas", "x.canvas.download"),
        (f"x.{'k' * 21}", f"x.{'k' * 20}.download"),
        ("u\u0308 \u1fef.pdf", "ü _.pdf"),  # what is composed may be a sign that ends a link
    ],
)
def test_a_name_is_made_fit(name: str, saved: str) -> None:
    assert file_name(name) == saved


@given(st.text(max_size=400))
@example("\U0001d160" * 40)  # composed, it has three times as many bytes
@example("u\u200b\u0308")
def test_whatever_it_is_called_it_is_a_plain_name_that_opens_nothing(name: str) -> None:
    saved = file_name(name)
    assert saved == saved.strip()
    assert saved[0] not in ".-~"
    assert not set(saved) & set('/\\:*?"<>|\0\n')
    assert len(saved.encode()) <= 200
    assert unicodedata.is_normalized("NFC", saved)
    assert saved.endswith(DOWNLOAD) or saved.rpartition(".")[2].casefold() in PASSIVE


@given(st.text(min_size=1, max_size=40), st.integers(2, 99))
def test_a_numbered_name_keeps_its_kind(name: str, number: int) -> None:
    saved = file_name(name)
    other = numbered(saved, number)
    assert other != saved
    assert f"-{number}" in other
    assert other.endswith(DOWNLOAD) == saved.endswith(DOWNLOAD)
    assert other.rpartition(".")[2] == saved.rpartition(".")[2] or DOWNLOAD in other
