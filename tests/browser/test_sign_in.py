"""The door: who gets in, and what a post must bring."""

import re
from typing import TypedDict

import httpx2
import pytest
from playwright.sync_api import Page, expect

from tests.browser.served import Room, Visits, status, trap
from tests.narrow import present


class Wrong(TypedDict, total=False):
    """What is wrong with a post: fields of the form, or headers."""

    token: str | None
    digest: str | None
    headers: dict[str, str]


def posted(
    page: Page, *, headers: dict[str, str] | None = None, **changes: str | None
) -> httpx2.Response:
    """Post an approval as the page would, but for these changes."""
    (cookie,) = page.context.cookies()
    form = page.locator("form.approve")
    fields = {name: form.locator(f"[name={name}]").input_value() for name in ("token", "digest")}
    own = page.url.partition("/letter")[0]
    return httpx2.post(
        own + present(form.get_attribute("action")),
        data={key: value for key, value in ({**fields, **changes}).items() if value is not None},
        headers={"Origin": own, "Cookie": f"{cookie['name']}={cookie['value']}"} | (headers or {}),
    )


def test_the_address_leads_to_the_queue_by_itself(desk: Room, visits: Visits) -> None:
    desk.propose()
    page = visits.window().new_page()
    page.goto(desk.invite())
    expect(page).to_have_url(
        re.compile(f"^{desk.address}/letter/[a-z2-7]{{10}}$")
    )  # the first letter is open
    expect(page.locator("#queue [aria-current]")).to_have_count(1)
    expect(page.locator("header.bar")).to_contain_text("Ada")


def test_without_scripts_it_takes_one_click(desk: Room, visits: Visits) -> None:
    page = visits.window(java_script_enabled=False).new_page()
    page.goto(desk.invite("Bo"))
    page.get_by_role("button", name="Open the desk").click()
    expect(page).to_have_url(f"{desk.address}/")
    expect(page.locator("header.bar")).to_contain_text("Bo")


def test_the_address_lets_only_one_browser_in(desk: Room, visits: Visits) -> None:
    address = desk.invite()
    visits.window().new_page().goto(address)
    second = visits.window().new_page()
    assert status(second, address) == 403
    expect(second.locator("main")).to_contain_text("already used")
    assert status(second, desk.address) == 401
    expect(second.locator("main")).to_contain_text("not signed in")


def test_a_page_that_was_not_entered_yet_lets_nobody_in_once_another_was(
    desk: Room, visits: Visits
) -> None:
    address = desk.invite()
    slow, quick = (visits.window(java_script_enabled=False).new_page() for _ in range(2))
    for page in (slow, quick):
        page.goto(address)
    quick.get_by_role("button", name="Open the desk").click()
    expect(quick).to_have_url(f"{desk.address}/")
    slow.get_by_role("button", name="Open the desk").click()
    expect(slow.locator("main")).to_contain_text("already used")


def test_a_made_up_address_lets_nobody_in(desk: Room, visits: Visits) -> None:
    page = visits.window().new_page()
    assert status(page, f"{desk.address}/in/{'x' * 43}") == 403
    assert status(page, f"{desk.address}/history") == 401
    assert page.context.cookies() == []


def test_nothing_is_shown_or_done_for_who_was_not_let_in(desk: Room) -> None:
    id = desk.propose()
    for path in ("/", f"/letter/{id}", "/history", "/agents", "/health"):
        assert httpx2.get(desk.address + path).status_code == 401
    assert httpx2.get(f"{desk.address}/events").status_code == 401
    done = httpx2.post(desk.url(id, "/approve"), headers={"Origin": desk.address})
    assert done.status_code == 401
    assert desk.state(id) == "pending"


def test_the_cookie_is_kept_from_scripts_and_from_other_sites(desk: Room, visits: Visits) -> None:
    page = visits.window().new_page()
    page.goto(desk.invite())
    page.locator("#queue").wait_for()
    (cookie,) = page.context.cookies()
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    assert page.evaluate("document.cookie") == ""


def test_who_signs_out_is_not_let_in_again(desk: Room, visits: Visits) -> None:
    page = visits.window().new_page()
    page.goto(desk.invite())
    page.locator("#queue").wait_for()
    kept = page.context.storage_state()
    page.get_by_role("button", name="Sign out").click()
    expect(page.locator("main")).to_contain_text("not signed in")
    again = visits.window(storage_state=kept).new_page()
    assert status(again, desk.address) == 401


@pytest.mark.parametrize(
    "wrong",
    [
        {"token": None},
        {"token": ""},
        {"token": "0" * 64},
        {"token": "é"},
        {"headers": {"Origin": "https://evil.example"}},
        {"headers": {"Origin": "null"}},
        {"headers": {"Origin": ""}},
        {"headers": {"Origin": "http://127.0.0.1:1"}},
        {"headers": {"Sec-Fetch-Site": "cross-site"}},
        {"headers": {"Host": "evil.example"}},
        {"headers": {"Host": "evil.example:8766"}},
        {"digest": "sha256:" + "0" * 64},
        {"digest": None},
    ],
    ids=repr,
)
def test_a_post_that_is_not_of_our_page_decides_nothing(
    desk: Room, visits: Visits, wrong: Wrong
) -> None:
    id = desk.propose()
    answer = posted(visits.letter(desk, id), **wrong)
    assert 400 <= answer.status_code < 500
    assert desk.state(id) == "pending"


def test_the_same_post_with_nothing_wrong_decides(desk: Room, visits: Visits) -> None:
    id = desk.propose()
    assert posted(visits.letter(desk, id)).status_code == 303
    assert desk.state(id) == "approved"


def test_a_name_that_leads_here_by_a_trick_is_not_answered(desk: Room) -> None:
    for host in ("evil.example", f"evil.example:{desk.port}", "127.0.0.1", f"127.0.0.1.nip.io:{desk.port}"):  # fmt: skip
        assert httpx2.get(desk.address, headers={"Host": host}).status_code == 403


def test_looking_at_the_address_of_a_verdict_decides_nothing(desk: Room, visits: Visits) -> None:
    id = desk.propose()
    page = visits.letter(desk, id)
    for verb in ("approve", "reject", "revise", "change"):
        assert status(page, desk.url(id, f"/{verb}")) == 404
    assert desk.state(id) == "pending"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])  # of the same site, and of another
def test_a_page_of_another_origin_decides_nothing_in_the_same_browser(
    desk: Room, visits: Visits, host: str
) -> None:
    id = desk.propose()
    page = visits.letter(desk, id)
    form = page.locator("form.approve")
    fields = {name: form.locator(f"[name={name}]").input_value() for name in ("token", "digest")}
    inputs = "".join(f'<input name="{name}" value="{value}">' for name, value in fields.items())
    attack = f'<form method="post" action="{desk.url(id, "/approve")}">{inputs}</form><script>document.forms[0].submit()</script>'  # fmt: skip
    with trap(lambda: attack) as other:
        page.goto(f"http://{host}:{other.port}/", wait_until="commit")
        page.wait_for_url(desk.url(id, "/approve"))
    expect(page.locator("body")).to_contain_text("did not come from a page of the desk")
    assert desk.state(id) == "pending"


def test_a_page_of_another_origin_cannot_frame_the_desk(desk: Room, visits: Visits) -> None:
    visits.tolerated = "frame|X-Frame-Options|Content Security Policy"
    page = visits.page(desk)
    with trap(lambda: f'<iframe src="{desk.address}/"></iframe>') as other:
        page.goto(f"http://127.0.0.1:{other.port}/")
        frame = page.frames[1]
        assert "letter" not in frame.content()
        assert not frame.url.startswith(desk.address)
