"""axe-core finds nothing serious on any page, in light and dark, on a desktop and a phone."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from scripts.scenes import KNOWN, SCENES, checks, desk_for
from tests.browser.served import SCHEMES, WIDE, Room, Rooms, Staged, Visits, approve, red
from tests.unit.web.browser import opened

AXE = (Path(__file__).parents[2] / ".cache/node/node_modules/axe-core/axe.min.js").read_text()
DESKTOP: ViewportSize = {"width": 1280, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}
RUN = """async () => {
    const found = await axe.run(document, { resultTypes: ["violations"] });
    return found.violations
        .filter((one) => ["serious", "critical"].includes(one.impact))
        .map((one) => `${one.id}: ${one.help}: ${one.nodes.map((node) => node.html.slice(0, 120) + " " + node.failureSummary).join("; ")}`);
}"""


@dataclass
class Shown:
    """A desk, and the path of each of its pages."""

    room: Room
    pages: dict[str, str]


@pytest.fixture(scope="module")
def shown(rooms: Rooms) -> Shown:
    """A desk with a letter of each kind, and the addresses of their pages."""
    room = rooms(undo_seconds=600)
    (room.person.vault / "Outgoing").mkdir(exist_ok=True)
    (room.person.vault / "Outgoing" / "plan.txt").write_text("x")
    mail = room.agent.first("in:inbox")
    ids = {
        "calm": room.propose(),
        "red": red(room, bcc=["boss@example.net"]),
        "html": room.propose(html='<p>Hello, <a href="https://example.com">look</a>.</p>'),
        "files": room.propose(attachments=["Outgoing/plan.txt"]),
        "answer": room.agent.done("reply_email", id=mail, body="Thanks.")["letter"],
        "approved": room.propose(),
        "rejected": room.propose(),
        "changed": room.propose(),
    }  # fmt: skip
    assert room.person.run("reject", ids["rejected"], "--reason", "no").code == 0
    pages = {name: f"/letter/{id}" for name, id in ids.items()} | {
        "queue": "/",
        "history": "/history",
        "agents": "/agents",
        "health": "/health",
        "not found": "/letter/aaaaaaaaaa",
        "edit": f"/letter/{ids['calm']}/edit",
        "no such search": "/history?q=nothing",
    }
    return Shown(room, pages)


def violations(page: Page) -> list[str]:
    """Return what axe finds in every look of a page."""
    page.evaluate(AXE)
    page.evaluate("document.querySelectorAll('.postmark').forEach((one) => one.classList.remove('fresh'))")  # fmt: skip
    found: list[str] = []
    for size in (DESKTOP, PHONE):
        page.set_viewport_size(size)
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            found += [f"{size['width']} {scheme} {one}" for one in page.evaluate(RUN)]
    return found


@pytest.mark.parametrize(
    "name",
    ["queue", "calm", "red", "html", "files", "answer", "rejected", "edit", "history", "no such search", "agents", "health", "not found"],
)  # fmt: skip
def test_axe_finds_nothing_on(shown: Shown, visits: Visits, name: str) -> None:
    page = visits.page(shown.room, shown.pages[name], bypass_csp=True)
    page.wait_for_function("!document.querySelector('[data-load]') && !document.body.textContent.includes('Loading…')")  # fmt: skip
    assert violations(page) == []


def test_axe_finds_nothing_on_the_page_of_an_approval(shown: Shown, visits: Visits) -> None:
    page = visits.page(
        shown.room, shown.pages["approved"], bypass_csp=True, reduced_motion="reduce"
    )
    approve(page)
    page.locator("#toast form").wait_for()
    assert violations(page) == []
    page.goto(shown.room.address + shown.pages["approved"])
    page.locator("#undo").wait_for()
    assert violations(page) == []


def test_axe_finds_nothing_on_the_forms_of_a_reason(shown: Shown, visits: Visits) -> None:
    page = visits.page(shown.room, shown.pages["calm"], bypass_csp=True)
    for choice in ("reject", "revise"):
        page.locator(f"button[popovertarget={choice}]").first.click()
        assert violations(page) == []
        page.keyboard.press("Escape")


def test_axe_finds_nothing_on_a_difference_and_a_changed_letter(
    shown: Shown, visits: Visits
) -> None:
    page = visits.page(
        shown.room, f"{shown.pages['changed']}/edit", bypass_csp=True, reduced_motion="reduce"
    )
    page.get_by_label("To").fill("")
    page.get_by_role("button", name="Review the changes").click()
    page.locator("main .notice.stop").wait_for()
    assert violations(page) == []
    page.get_by_label("To").fill("dora@example.com")
    page.get_by_label("Text").fill("My key is AKIAIOSFODNN7EXAMQLE.")
    page.get_by_role("button", name="Review the changes").click()
    page.locator("ins").first.wait_for()
    assert violations(page) == []
    page.get_by_role("button", name="Save without approving").click()
    page.get_by_role("heading", name="Changes").wait_for()
    assert violations(page) == []


def test_axe_finds_nothing_on_the_list_of_keys(shown: Shown, visits: Visits) -> None:
    page = visits.page(shown.room, bypass_csp=True)
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()
    assert violations(page) == []


# Scenes that no page above shows, each with its desk.
STATES = ["queue-filtered", "all-decided", "red-note", "red-ticked", "red-origins", "files", "long-thread", "held", "unknown", "failed", "two-people", "note-edited", "print", "rehearsal", "locked"]  # fmt: skip


@pytest.mark.parametrize("name", STATES)
def test_axe_finds_nothing_on_the_scene(tmp_path: Path, visits: Visits, name: str) -> None:
    desk = desk_for(name, tmp_path)
    with ExitStack() as stack:
        stack.callback(desk.office.close)
        site = stack.enter_context(opened(desk.office, health=checks))
        page = visits.staged(site, **(WIDE | {"bypass_csp": True, "reduced_motion": "reduce"}))
        stack.callback(page.context.close)  # before the desk
        SCENES[name](desk, page, site)
        page.wait_for_function("!document.querySelector('[data-load]') && !document.body.textContent.includes('Loading…')")  # fmt: skip
        assert violations(page) == []


def test_axe_finds_nothing_on_a_queue_with_every_group(staged: Staged, visits: Visits) -> None:
    desk, office = staged.desk, staged.desk.office
    desk.know(*KNOWN)
    desk.unknown()
    desk.courier.settles = True
    desk.failed()
    desk.plain(1)
    desk.red()
    desk.amber()
    held, leaving = desk.plain(2), desk.plain(3)
    office.desk.approve(held.id, by="Robin", digest=held.digest)
    office.clock.go(office.rules.undo_seconds)
    desk.courier.refuses()
    office.desk.send_approved()
    office.desk.approve(leaving.id, by="Robin", digest=leaving.digest)
    page = visits.staged(staged.site, **(WIDE | {"bypass_csp": True, "reduced_motion": "reduce"}))
    for group in ("unknown", "failed", "look", "plain", "held", "sending"):
        expect(page.locator(f"#queue h2.{group}")).to_be_visible()
    assert violations(page) == []


def test_axe_finds_nothing_at_the_door(shown: Shown, visits: Visits) -> None:
    page = visits.window(bypass_csp=True).new_page()
    page.route("**/static/desk.js*", lambda route: route.abort())  # it would go on by itself
    visits.tolerated = "net::ERR_FAILED"
    page.goto(shown.room.invite())
    assert violations(page) == []
    page.goto(shown.room.address)
    assert violations(page) == []


def test_axe_finds_nothing_on_an_empty_desk(rooms: Rooms, visits: Visits) -> None:
    room = rooms(undo_seconds=1)
    page = visits.page(room, bypass_csp=True)
    for path in ("/", "/history", "/agents"):
        page.goto(room.address + path)
        page.wait_for_function("!document.querySelector('[data-load]')")
        assert violations(page) == []


def test_axe_finds_nothing_where_the_passphrase_is_asked_for(rooms: Rooms, visits: Visits) -> None:
    room = rooms(undo_seconds=0, trust="desk")
    page = visits.window(bypass_csp=True).new_page()
    page.goto(room.invite())
    page.get_by_label("Your passphrase").fill("guess it")
    page.get_by_role("button", name="Open the desk").click()
    page.locator(".notice.stop").wait_for()
    assert violations(page) == []
