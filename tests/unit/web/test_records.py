"""Looking back on the page: the history and its search, the agents, the health, the chain and the chart."""

from datetime import date
from pathlib import Path
from typing import Never
from urllib.parse import urlencode

import pytest

from postroom.agents.mail import AgentMail
from postroom.agents.roster import AgentCaller
from postroom.core.address import Address
from postroom.core.errors import Unavailable
from postroom.core.records import Check, Entry
from postroom.desk.recorder import Call
from postroom.services.correspondence import Correspondence
from postroom.web import templates
from tests.desks import BOB, CAT, Office
from tests.unit.web.browser import Browser, Node, Site, macro, opened, parsed


def found(browser: Browser, **asked: str) -> list[str]:
    """Return the subjects that a search of the history gives."""
    page = browser.get(f"/history?{urlencode(asked)}").page
    tables = page.all("table", class_="letters")
    return [row.one("a").text for table in tables for row in table.one("tbody").all("tr")]


def rejected(
    office: Office, subject: str, agent: str = "claude", **changes: str | tuple[Address]
) -> Entry:
    entry = office.propose(office.letter(subject=subject, **changes), Call("send_email", agent))
    office.desk.decide(entry.id, "reject", by="ada", reason="no")
    return entry


def test_the_history_is_searched_by_every_word_wherever_it_stands(
    office: Office, browser: Browser
) -> None:
    first = rejected(office, "Ärger im Büro", to=(BOB,), text="Über die Straße.\n")
    rejected(office, "100% sure", agent="gpt_4", text='She said "yes" to it.\n')
    rejected(office, "100 percent", to=(CAT,), text="Plain.\n")
    office.propose(office.letter(subject="Waits still"))
    every = ["100 percent", "100% sure", "Ärger im Büro"]
    assert found(browser) == every  # newest first, and what waits is no history
    assert found(browser, q="bob@example.net") == ["Ärger im Büro"]
    assert found(browser, q="BOB") == ["Ärger im Büro"]
    for word in ("ärger", "ÄRGER", "büro", "über", "STRASSE"[:4] + "ße", "straße", first.id):
        assert found(browser, q=word) == ["Ärger im Büro"], word
    assert found(browser, q="büro über") == ["Ärger im Büro"]
    assert found(browser, q="büro nowhere") == []
    assert found(browser, q="100%") == ["100% sure"]
    assert found(browser, q="%") == ["100% sure"]
    assert found(browser, q="gpt_4") == ["100% sure"]
    assert found(browser, q="_") == ["100% sure"]
    assert found(browser, q='"yes"') == ["100% sure"]
    assert found(browser, q="' OR 1=1 --") == []
    assert found(browser, q="*") == []
    assert found(browser, q="x" * 5000) == []
    assert found(browser, q="  ") == every
    words = browser.get("/history?q=nowhere").words
    assert "No letters found" in words


def test_the_history_is_filtered_by_outcome_and_by_agent(office: Office, browser: Browser) -> None:
    rejected(office, "No", agent="a")
    sent = office.approved(subject="Yes")
    office.desk.send_approved()
    withdrawn = office.propose(office.letter(subject="Back"), Call("send_email", "b"))
    office.desk.calls.withdraw(Call("send_email", "b"), withdrawn.id)
    office.propose(office.letter(subject="Waits"), Call("send_email", "a"))
    assert found(browser) == ["Back", "Yes", "No"]
    assert found(browser, state="sent") == ["Yes"]
    assert found(browser, state="rejected") == ["No"]
    assert found(browser, state="withdrawn", q="back") == ["Back"]
    assert found(browser, state="expired") == []
    assert found(browser, state="nonsense") == ["Back", "Yes", "No"]
    assert found(browser, agent="a") == ["Waits", "No"]
    assert found(browser, agent="a", state="rejected") == ["No"]
    assert found(browser, agent="nobody") == []
    (row,) = [row for row in browser.get("/history").page.all("tr") if "Yes" in row.text]
    assert "ada" in row.text
    assert sent.id in str([a.attrs for a in row.all("a")])


def test_a_long_history_is_turned_over_and_keeps_what_was_asked_for(office: Office) -> None:
    office.reopen(open_letters=1000, proposals_per_hour=1000)
    call = Call("send_email", "claude")
    for n in range(103):
        entry = office.desk.proposals.propose(call, office.letter(subject=f"{{x}} & number {n}"))
        office.desk.verdicts.decide(entry.id, "reject", by="ada", reason="")
    with opened(office) as site:
        browser = site.browser()
        seen, path = [], f"/history?{urlencode({'q': '{x} &', 'state': 'rejected'})}"
        while path:
            page = browser.get(path).page
            seen += [row.one("a").text for row in page.one("tbody").all("tr")]
            assert page.one("input", id="search").attrs["value"] == "{x} &"
            path = next((a.attrs["href"] for a in page.all("a") if a.attrs.get("rel") == "next"), "")  # fmt: skip
        assert "103 letters" in page.words
    assert seen == [f"{{x}} & number {n}" for n in reversed(range(103))]


def test_an_empty_history_says_what_will_be_there(browser: Browser) -> None:
    assert "No letters decided yet" in browser.get("/history").words
    assert "Nothing is waiting" in browser.get("/").words


# The chain


def test_whether_the_log_is_as_it_was_written_is_told(office: Office, browser: Browser) -> None:
    office.propose()
    whole = browser.get("/history/chain")
    assert "The audit log is intact" in whole.words
    assert f"{office.desk.ledger.actions.head()} action" in whole.words
    (file,) = (office.vault / "Logs" / "actions").glob("*.json")
    file.write_bytes(file.read_bytes().replace(b"claude", b"mallory"))
    broken = browser.get("/history/chain")
    assert "The audit log was changed" in broken.words
    assert "postroom audit verify" in broken.words
    assert not browser.get("/history/chain", x_desk_live="1").page.all("html")


# Agents


def rows(page: Node) -> dict[str, list[str]]:
    return {row.one("th").text: [cell.text for cell in row.all("td")] for row in page.one("tbody").all("tr")}  # fmt: skip


@pytest.fixture
def alone(office: Office, tmp_path: Path) -> Path:
    """The desk, started in a folder that is no repository."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    office.services.correspondence = Correspondence(AgentMail(str(folder), {}), office.desk.recorder, lambda: b"k" * 32, lambda _s: None)  # fmt: skip
    return folder


def test_each_agent_is_shown_with_its_letters(
    office: Office, browser: Browser, alone: Path
) -> None:
    office.propose(call=Call("send_email", "claude"))
    rejected(office, "No", agent="gpt <4>")
    rejected(office, "Nor that", agent="gpt <4>")
    page = browser.get("/agents").page
    shown = rows(page)
    columns = [head.words for head in page.one("thead").all("th")]
    assert columns == ["Agent", "Status", "Unread", "Waiting", "Proposed", "Approved", "Edited", "Rejected", "Last letter", "Letters"]  # fmt: skip
    assert shown["claude"][1:7] == ["0", "1", "1", "0", "0", "0"]
    assert shown["gpt <4>"][1:7] == ["0", "0", "2", "0", "0", "2"]
    (link,) = [a.attrs["href"] for a in page.all("a") if "gpt" in a.attrs["href"]]
    assert "Nor that" in browser.get(link).words


def test_an_agent_whose_letters_are_often_edited_is_pointed_out(
    office: Office, browser: Browser, alone: Path
) -> None:
    for agent, edits in (("calm", 0), ("wordy", 2)):
        for n in range(5):
            entry = office.propose(office.letter(subject=f"Number {n}"), Call("send_email", agent))
            if n < edits:
                changed = office.letter(id=entry.id, subject=f"Number {n}", text="Shorter.\n")
                entry = office.desk.edit(entry.id, changed)
            if n:
                office.desk.approve(entry.id, by="ada", digest=entry.digest)
    shown = rows(browser.get("/agents").page)
    assert shown["calm"][2:7] == ["5", "5", "4", "0", "0"]
    assert shown["wordy often edited"][2:7] == ["5", "5", "4", "2", "0"]


def test_letters_of_more_than_thirty_days_ago_do_not_count_for_their_agent(
    office: Office, site: Site, alone: Path
) -> None:
    rejected(office, "Long ago", agent="claude")
    office.clock.go(31 * 86_400)
    shown = rows(site.browser().get("/agents").page)
    assert shown["claude"][2:7] == ["0"] * 5


def test_without_agents_or_a_repository_the_page_says_how_to_begin(
    browser: Browser, alone: Path
) -> None:
    answer = browser.get("/agents")
    assert answer.status == 200
    assert "postroom install" in answer.words


def test_in_a_repository_the_agents_of_agent_mail_are_there_with_what_they_have_not_read(
    office: Office, browser: Browser, alone: Path
) -> None:
    (alone / ".git").mkdir()
    mail = AgentMail(str(alone), {})
    for name in ("alice", "bob"):
        mail.register(AgentCaller(name))
    mail.set_status(AgentCaller("bob"), "ready")
    for n in range(3):
        mail.send(AgentCaller("alice"), "bob", f"hello {n}")
    office.services.correspondence = Correspondence(AgentMail(str(alone), {}), office.desk.recorder, lambda: b"k" * 32, lambda _s: None)  # fmt: skip
    shown = rows(browser.get("/agents").page)
    assert shown["bob"][:2] == ["ready", "3"]
    assert shown["alice"][1] == "0"


def test_agent_mail_that_cannot_be_looked_at_is_said(
    office: Office, browser: Browser, alone: Path
) -> None:
    class Broken(Correspondence):
        def present(self) -> Never:
            raise Unavailable("a lock is held", remedy="Wait.")

    office.propose()
    office.services.correspondence = Broken(AgentMail(str(alone), {}), office.desk.recorder, bytes, lambda _s: None)  # fmt: skip
    answer = browser.get("/agents")
    assert answer.status == 200
    assert "Cannot read agent mail: a lock is held. Wait." in answer.words
    assert "claude" in rows(answer.page)


# Health


def test_what_is_amiss_is_shown_with_its_remedy(office: Office) -> None:
    checks = [Check("disk", "fail", "1 MB left", "Free <some> space."), Check("vault", "ok", "fine"), Check("mode", "note", "rehearsal")]  # fmt: skip
    mail = [Check("account", "fail", "signed out", "Run `postroom auth gmail`.")]
    with opened(office, health=lambda: checks, mail_health=lambda: mail) as site:
        browser = site.browser()
        page = browser.get("/health").page
        (bad,) = page.all("li", class_="fail")
        assert "Free <some> space." in bad.text
        assert "1 MB left" in bad.text
        assert len(page.one("ul", class_="checks").all("li")) == 3
        assert "signed out" not in page.words  # which would have to be waited for
        asked = browser.get("/health/mail")
        assert "signed out" in asked.words
        assert "postroom auth gmail" in asked.words


def test_a_look_that_fails_is_said_on_the_page(office: Office) -> None:
    def broken() -> Never:
        raise Unavailable("the vault is gone", remedy="Plug it in.")

    with opened(office, health=broken, mail_health=broken) as site:
        for path in ("/health", "/health/mail"):
            answer = site.browser().get(path)
            assert answer.status == 503
            assert "Plug it in." in answer.words


# The chart

TODAY = date(2026, 11, 15)
DAY = (TODAY - date(1970, 1, 1)).days


def chart(days: dict[int, dict[str, int]]) -> str:
    """Return the chart of these days as a page shows it."""
    return macro("common.html", "chart")(templates.chart(days, TODAY)).strip()


def titles(drawn: str) -> list[str]:
    return [node.text for node in parsed(drawn).all("title")]


def test_the_chart_says_how_many_of_each_on_each_day() -> None:
    few = {DAY - n: {"sent": 1} for n in (1, 2, 3)}
    drawn = chart({DAY: {"approved": 3, "sent": 2}, DAY - 29: {"rejected": 1}, DAY - 30: {"sent": 9}, DAY + 1: {"sent": 9}, **few})  # fmt: skip
    days = [f"2026-11-{day}: 1 sent" for day in (12, 13, 14)]
    assert titles(drawn) == ["2026-10-17: 1 rejected", *days, "2026-11-15: 3 approved, 2 sent"]
    label = parsed(drawn).one("svg").attrs["aria-label"]
    assert label == "Letters in the last 30 days: 3 approved, 1 rejected, 5 sent"


def test_bars_stand_on_the_line_and_none_is_higher_than_the_chart() -> None:
    days = {DAY - n: {"approved": n * 7, "rejected": n, "sent": 200 - n} for n in range(30)}
    for bar in parsed(chart(days)).all("rect"):
        top, tall = float(bar.attrs["y"]), float(bar.attrs["height"])
        assert top >= 0
        assert tall > 0
        assert top + tall <= 60.11
        assert 0 <= float(bar.attrs["x"]) <= 361


def test_without_letters_there_is_no_chart() -> None:
    assert chart({}) == ""
    assert chart({DAY - 31: {"sent": 1}}) == ""


def test_a_chart_of_fewer_than_five_days_says_nothing_and_is_not_drawn() -> None:
    days = {DAY - n: {"sent": 1} for n in range(5)}
    assert len(titles(chart(days))) == 5
    del days[DAY]
    assert chart(days) == ""
    assert chart(days | {DAY - 30: {"sent": 1}}) == ""  # which is too long ago


def test_what_was_decided_is_in_the_chart(office: Office, browser: Browser) -> None:
    for _ in range(5):
        assert not browser.get("/history").page.all("figure")
        rejected(office, "No")
        office.approved()
        office.desk.send_approved()
        office.clock.go(86_400)
    titles = [f"2026-11-{day}: 1 approved, 1 rejected, 1 sent" for day in range(15, 20)]
    for path in ("/history", "/"):
        drawn = browser.get(path).page.one("figure")
        assert [node.text for node in drawn.all("title")] == titles, path
