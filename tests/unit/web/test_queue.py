"""The queue: its groups and their order, its filter, its pages, and the letter that is open beside it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from postroom.core.address import Address
from postroom.core.records import Entry
from postroom.desk.recorder import Call
from postroom.mail.mailbox import Arrival
from postroom.web.live import STALE_SECONDS
from tests.desks import ANN, APPROVED, CAT, HOUR, REJECTED, START, Office
from tests.mails import mail
from tests.providers import BARRED, BUSY, Courier
from tests.unit.web.browser import Browser, Node, Site, opened, until
from tests.unit.web.test_live import rounds, shown

RED = "The password is hunter2hunter2\n"
CODEX = Call("send_email", "codex")


@pytest.fixture
def known(office: Office) -> Address:
    """A person to whom a mail was written before: a letter to her has no warning."""
    raw = mail(sender="you@example.org", to=ANN.spec, subject="Earlier")
    office.box.add_mails([Arrival(raw, frozenset({"SENT"}), int(START) - 86_400)])
    return ANN


def groups(page: Node) -> dict[str, list[str]]:
    """Return the ids of each group of the queue, in the order of the page."""
    found: dict[str, list[str]] = {}
    for node in page.one("nav", id="queue").children:
        if isinstance(node, Node) and node.tag == "h2":
            found[node.attrs["class"]] = []
        elif isinstance(node, Node) and node.tag == "ul":
            found[list(found)[-1]] += [row.attrs["data-id"] for row in node.all("a")]
    return found


def listed(page: Node) -> list[str]:
    return [row.attrs["data-id"] for row in page.one("nav", id="queue").all("a") if "data-id" in row.attrs]  # fmt: skip


def is_open(page: Node) -> str:
    """Return the id of the letter that is open, which its row shows too, if it is listed."""
    articles = page.all("article", id="letter")
    id = articles[0].attrs["data-letter"] if articles else ""
    current = [row.attrs["data-id"] for row in page.one("nav", id="queue").all("a", **{"aria-current": "true"})]  # fmt: skip
    assert current == [id] * (id in listed(page))
    return id


# Groups


def test_what_may_have_been_sent_is_first_and_what_needs_no_decision_is_last(
    office: Office, courier: Courier, known: Address
) -> None:
    office.reopen(open_letters=100, proposals_per_hour=100)
    courier.settles = False
    courier.loses(after=False)
    unknown = office.approved(subject="Lost")
    office.desk.send_approved()
    courier.refuses(BARRED)
    failed = office.approved(subject="Refused")
    office.desk.send_approved()
    courier.refuses(BUSY)
    held = office.approved(subject="Held")
    office.desk.send_approved()
    leaving = office.propose(office.letter(subject="Leaving"))
    office.desk.approve(leaving.id, by="ada", digest=leaving.digest)
    plain = [office.propose(office.letter(subject=f"Plain {n}")) for n in range(2)]
    red = office.propose(office.letter(subject="Red", text=RED))
    amber = office.propose(office.letter(subject="Amber", to=(CAT,)))
    with opened(office) as site:
        page = site.browser().get("/").page
    assert list(groups(page).items()) == [
        ("unknown", [unknown.id]),
        ("failed", [failed.id]),
        ("look", [amber.id, red.id]),
        ("plain", [plain[1].id, plain[0].id]),
        ("held", [held.id]),
        ("sending", [leaving.id]),
    ]
    titles = [one.words for one in page.one(id="queue").all("h2")]
    assert titles == ["May or may not have been sent 1", "Could not be sent 1", "Needs a look 2", "Plain 2", "Held 1", "Sending 1"]  # fmt: skip
    assert is_open(page) == unknown.id


def test_a_row_says_whom_the_letter_goes_to_how_it_begins_and_why_it_needs_a_look(
    office: Office, browser: Browser, known: Address
) -> None:
    to = (Address.parse("Cleo <cleo@example.net>"), ANN)
    red = office.propose(office.letter(subject="Red <b>", text=f"Dear\u00a0all,\n\n{RED}", to=to))
    plain = office.propose(office.letter(subject="", to=(Address.parse(ANN.spec),)))
    page = browser.get("/").page
    (first,) = page.one(id="queue").all("a", **{"data-id": red.id})
    assert first.one(class_="whom").words == "Cleo cleo@example.net +1 more"
    assert first.one(class_="subject").text == "Red <b>"
    assert first.one(class_="opening").words.startswith("Dear all, The password")
    assert first.one(class_="reason").words == "Red: seems to contain a secret"
    assert "stop" in first.attrs["class"].split()
    (second,) = page.one(id="queue").all("a", **{"data-id": plain.id})
    assert second.one(class_="whom").words == ANN.spec
    assert second.one(class_="subject").text == "(no subject)"
    assert not second.all(class_="reason")
    assert "calm" in second.attrs["class"].split()


def test_a_row_says_when_a_letter_expires_only_in_its_last_hours(
    office: Office, site: Site
) -> None:
    entry = office.propose()
    for hours, sentence in ((59, ""), (61, "expires in 11 h"), (71.5, "expires in 30 min")):
        office.clock.go(hours * HOUR - (office.clock.wall - START))
        page = site.browser().get("/").page
        (row,) = page.one(id="queue").all("a", **{"data-id": entry.id})
        assert " ".join(one.words for one in row.all(class_="when")) == sentence
        assert ("Expires in" in page.one(class_="state").words) == bool(sentence)


def test_rehearsed_letters_are_a_group_of_their_own(tmp_path: Path) -> None:
    office = Office(tmp_path, live=False, source="dry_run")
    entries = [office.propose() for _ in range(2)]
    with opened(office) as site:
        page = site.browser().get("/").page
    office.close()
    assert groups(page) == {"rehearsal": [entry.id for entry in reversed(entries)]}
    assert is_open(page) == entries[1].id
    assert "Rehearsal mode" in page.one(id="notices").words


# The letter that is open


def test_the_first_letter_that_waits_is_open_and_a_letter_at_its_own_address(
    office: Office, browser: Browser, known: Address
) -> None:
    assert is_open(browser.get("/").page) == ""
    plain = [office.propose() for _ in range(3)]
    assert is_open(browser.get("/").page) == plain[2].id
    red = office.propose(office.letter(text=RED))
    newer = office.propose()
    assert is_open(browser.get("/").page) == red.id
    for entry in (*plain, newer):
        page = browser.get(f"/letter/{entry.id}").page
        assert is_open(page) == entry.id
        assert listed(page) == [red.id, newer.id, *(one.id for one in reversed(plain))]


def test_the_next_letter_is_a_link_away_and_of_the_last_one_the_one_before(
    office: Office, browser: Browser, known: Address
) -> None:
    plain, red = [office.propose() for _ in range(2)], office.propose(office.letter(text=RED))
    for entry, other in ((red, plain[1]), (plain[1], plain[0]), (plain[0], plain[1])):
        links = browser.get(f"/letter/{entry.id}").page.one(class_="turn").all("a")
        assert [one.attrs["href"] for one in links] == ["/", f"/letter/{other.id}"]
    for entry in (red, plain[1]):
        office.desk.decide(entry.id, "reject", by="ada", reason="")
    links = browser.get(f"/letter/{plain[0].id}").page.one(class_="turn").all("a")
    assert [one.attrs["href"] for one in links] == ["/"]


def test_without_a_letter_that_waits_the_page_says_whether_any_was_decided(
    office: Office, browser: Browser
) -> None:
    page = browser.get("/").page
    assert page.one("h1").text == "No letters waiting"
    assert "Nothing is waiting" in page.one(id="queue").words
    entry = office.propose()
    browser.decide(entry.id, "approve")
    page = browser.get("/").page
    assert page.one("h1").text == "All decided"
    assert groups(page) == {"sending": [entry.id]}
    assert page.one("title").text == "Queue · Postroom"


# The filter


@pytest.fixture
def several(office: Office, known: Address) -> dict[str, Entry]:
    """Letters that differ in all that a filter can name, by their subject."""
    cleo = Address.parse("Cleo Śmith <c.smith@example.net>")
    letters = [
        office.propose(office.letter(subject="Atlas", text="The ferry leaves at 100% noon.\n")),
        office.propose(office.letter(subject="Büro", text=RED), CODEX),
        office.propose(office.letter(subject="Ferry", to=(cleo,)), CODEX),
        office.propose(office.letter(subject="Work", to=(cleo, ANN), account="work")),
    ]
    return {entry.letter.subject: entry for entry in letters}


FILTERS: tuple[tuple[dict[str, str], str], ...] = (
    ({}, "Work Ferry Büro Atlas"),
    ({"q": ""}, "Work Ferry Büro Atlas"),
    ({"risk": "red"}, "Büro"),
    ({"risk": "amber"}, "Work Ferry"),
    ({"risk": "plain"}, "Atlas"),
    ({"agent": "codex"}, "Ferry Büro"),
    ({"agent": "nobody"}, ""),
    ({"account": "work"}, "Work"),
    ({"account": "default"}, "Ferry Büro Atlas"),
    ({"to": "ann@example.com"}, "Work Büro Atlas"),
    ({"to": "SMITH"}, "Work Ferry"),
    ({"to": "example.net"}, "Work Ferry"),
    ({"to": "cleo śm"}, "Work Ferry"),
    ({"to": "%"}, ""),
    ({"q": "ferry"}, "Ferry Atlas"),
    ({"q": "FERRY  leaves"}, "Atlas"),
    ({"q": "büro"}, "Büro"),
    ({"q": "100%"}, "Atlas"),
    ({"q": "%"}, "Atlas"),
    ({"q": "codex"}, "Ferry Büro"),
    ({"q": "nowhere"}, ""),
    ({"q": "' OR 1=1 --"}, ""),
    ({"q": "ferry", "agent": "codex"}, "Ferry"),
    ({"q": "ferry", "risk": "plain"}, "Atlas"),
    ({"agent": "codex", "risk": "amber", "to": "cleo", "account": "default", "q": "ferry"}, "Ferry"),
    ({"agent": "codex", "risk": "plain"}, ""),
    # What nobody can have chosen
    ({"risk": "purple"}, "Work Ferry Büro Atlas"),
    ({"risk": "RED"}, "Work Ferry Büro Atlas"),
    ({"page": "-1"}, "Work Ferry Büro Atlas"),
    ({"page": "0"}, "Work Ferry Büro Atlas"),
    ({"page": "9" * 9_000}, "Work Ferry Büro Atlas"),
    ({"page": "٣"}, "Work Ferry Büro Atlas"),
    ({"page": "²"}, "Work Ferry Büro Atlas"),
    ({"page": "1e9"}, "Work Ferry Büro Atlas"),
    ({"page": "x\0"}, "Work Ferry Büro Atlas"),
    ({"q": "ferry\0"}, ""),
    ({"to": "\0"}, ""),
    ({"agent": "codex\0"}, ""),
    ({"account": "\0"}, ""),
    ({"q": "x" * 10_000}, ""),
    ({"q": "ferry " * 2_000}, "Ferry Atlas"),
    ({"q": "\u202e\ufeff"}, ""),
    ({"q": '"><script>alert(1)</script>', "to": "'", "agent": "</select>", "account": "<b>"}, ""),
    ({"nonsense": "x", "done": "approve", "of": "zzzzzzzzzz"}, "Work Ferry Büro Atlas"),
)  # fmt: skip


def test_a_filter_shows_the_letters_that_fit_all_of_it(
    office: Office, browser: Browser, several: dict[str, Entry]
) -> None:
    subject = {entry.id: name for name, entry in several.items()}
    for given, wanted in FILTERS:
        answer = browser.get(f"/?{urlencode(given)}")
        assert answer.status == 200, given
        page = answer.page
        assert sorted(map(subject.__getitem__, listed(page))) == sorted(wanted.split()), given
        assert is_open(page) == (listed(page)[0] if wanted else ""), given
        assert ("No letter fits" in page.words) == (not wanted), given
        assert len(page.all("script")) == 1
        assert len(answer.text) < 60_000
        form = page.one("form", class_="filter")
        chosen = {one.attrs["name"]: one.one("option", selected="").attrs.get("value", one.one("option", selected="").text) for one in form.all("select") if one.all("option", selected="")}  # fmt: skip
        kept = {name: given[name] for name in ("risk", "agent", "account") if given.get(name) in ("red", "amber", "plain", "codex", "work", "default")}  # fmt: skip
        assert {name: value for name, value in chosen.items() if value} == kept, given


def test_a_filter_is_kept_in_its_fields_its_links_and_its_forms(
    office: Office, browser: Browser, several: dict[str, Entry]
) -> None:
    given = {"q": 'fe"&r', "to": "example", "agent": "codex", "account": "default", "risk": "amber"}
    office.propose(office.letter(subject='fe"&r', to=(CAT,)), CODEX)
    office.propose(office.letter(subject='fe"&r too', to=(CAT,)), CODEX)
    page = browser.get(f"/?{urlencode(given)}").page
    form = page.one("form", class_="filter")
    assert {name: form.fields[name] for name in ("q", "to")} == {name: given[name] for name in ("q", "to")}  # fmt: skip
    assert "open" in form.one("details").attrs
    addresses = [row.attrs["href"] for row in page.one(id="queue").all("a")]
    addresses += [one.attrs["href"] for one in page.one(class_="turn").all("a")]
    addresses += [page.one(id="edit").attrs["href"]]
    addresses += [one.attrs["action"] for one in page.one("footer").all("form")]
    assert len(addresses) >= 8
    for address in addresses:
        assert {name: value for name, (value,) in parse_qs(urlsplit(address).query).items()} == given  # fmt: skip
    assert [one.attrs["href"] for one in form.all("a")] == ["/"]


def test_a_verdict_leads_on_with_the_filter(office: Office, site: Site) -> None:
    browser = site.browser()
    given = {"q": "a&done=reject&of=zz\r\nx", "agent": "claude", "page": "2"}
    entry = office.propose()
    for verb in ("approve", "undo", "reject", "reopen"):
        form = browser.get(f"/letter/{entry.id}?{urlencode(given)}").page.form(f"/{verb}?{urlencode(given)}")  # fmt: skip
        answer = browser.submit(form, follow=False)
        assert answer.status == 303
        there = urlsplit(answer.headers["location"])
        assert (there.path, parse_qs(there.query)) == (
            f"/letter/{entry.id}",
            {"done": [verb], **{name: [value] for name, value in given.items()}},
        )


def test_a_filter_hides_no_letter_that_is_asked_for_by_its_address(
    office: Office, browser: Browser, several: dict[str, Entry]
) -> None:
    page = browser.get(f"/letter/{several['Büro'].id}?risk=plain").page
    assert page.one("article").attrs["data-letter"] == several["Büro"].id
    assert listed(page) == [several["Atlas"].id]
    assert is_open(page) == several["Büro"].id


def test_a_filtered_queue_of_many_is_turned_over_and_the_page_is_kept(office: Office) -> None:
    office.reopen(open_letters=1000, proposals_per_hour=1000)
    entries = [office.desk.proposals.propose(CODEX, office.letter(subject=f"Number {n}", to=(CAT,))) for n in range(101)]  # fmt: skip
    office.desk.proposals.propose(Call("send_email", "claude"), office.letter(subject="Other"))
    with opened(office) as site:
        browser, seen, path = site.browser(), list[str](), "/?agent=codex"
        while path:
            page = browser.get(path).page
            seen += listed(page)
            assert is_open(page) == listed(page)[0]
            number = len(seen) // 50 + bool(len(seen) % 50)
            assert f"Page {number} of 3" in page.one(id="queue").words
            for row in page.one(id="queue").all("a"):
                if "data-id" in row.attrs:
                    end = f"&page={number}" if number > 1 else ""
                    assert row.attrs["href"] == f"/letter/{row.attrs['data-id']}?agent=codex{end}"
            path = next((a.attrs["href"] for a in page.all("a") if a.attrs.get("rel") == "next"), "")  # fmt: skip
        assert [a.attrs["href"] for a in page.all("a") if a.attrs.get("rel") == "prev"] == ["/?agent=codex&page=2"]  # fmt: skip
        beyond = browser.get("/?agent=codex&page=99").page
        assert listed(beyond) == seen[100:]
    assert seen == [entry.id for entry in reversed(entries)]


# What is shown of the time and of the folders


def test_the_meter_shows_how_much_of_the_budget_is_used_and_that_it_is_full(
    office: Office, courier: Courier
) -> None:
    office.reopen(sends_per_hour=2)
    with opened(office) as site:
        browser = site.browser()
        for sent, is_full in ((0, False), (1, False), (2, True)):
            budget = browser.get("/").page.one(class_="budget")
            meter = budget.one("meter").attrs
            assert (meter["min"], meter["max"], meter["value"]) == ("0", "2", f"{sent}")
            assert ("full" in budget.attrs["class"].split()) == is_full
            usage = f"Sent: {sent} of 2 letters this hour"
            assert budget.words == (f"{usage}, next at 01:00" if is_full else usage)
            office.approved()
            office.desk.send_approved()


@pytest.mark.parametrize(("folder", "state"), [(APPROVED, "approved"), (REJECTED, "rejected")])
def test_a_note_that_was_moved_shows_on_a_letters_page_once_the_last_look_is_old(
    office: Office, folder: str, state: str
) -> None:
    entry = office.propose()
    with rounds(office, 1) as dispatcher:
        dispatcher.run()  # a look at the folders
        office.move(entry.id, folder)
        assert "Waiting for your approval" in shown(office, dispatcher, path="letter", id=entry.id)
        assert office.state_of(entry.id) == "pending"

        def is_seen() -> bool:
            shown(office, dispatcher, path="letter", id=entry.id)
            return office.state_of(entry.id) == state

        until(is_seen, STALE_SECONDS + 10)
