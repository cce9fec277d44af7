"""Our server for stdio answers as the MCP SDK's does, up to a list of known differences.

Both servers get the same lines, in this process, over one desk: sessions that real clients have begun
(`tests/fixtures/sessions`), and sessions that Hypothesis makes up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from postroom.cli.server import ConfiguredDesk, load_listing
from postroom.config.loading import load
from postroom.tools import protocol
from postroom.tools.calls import Calls
from postroom.tools.contracts.all import CONTRACT
from tests.agents import SAMPLE
from tests.conftest import EXAMPLES, Person, examples
from tests.sessions import Answers, Message, send_to_ours, send_to_sdk

RECORDED = sorted((Path(__file__).parents[1] / "fixtures" / "sessions").glob("*.jsonl"))
MARK = re.compile("[0-9a-f]{16}")  # around what others wrote, drawn for each answer
END = b"(the end)"
LETTER_ID = re.compile(r"\b[a-z2-7]{10}\b")
FOLDER = re.compile(r"/[\w/-]+/robin\w*")  # of the person's settings
SESSIONS = 5_000 if EXAMPLES >= 1000 else examples(300)


class Site(NamedTuple):
    """A desk with one pending letter."""

    listing: dict[str, Any]
    calls: Calls
    letter: str


class SharedDesk(ConfiguredDesk):
    """A desk that outlives the servers of one test after the other."""

    def close(self) -> None:
        """Leave it open."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with open_site(tmp_path_factory.mktemp("robin"), CLIENT) as found:
        yield found


@contextmanager
def open_site(folder: Path, client: Mapping[str, str]) -> Iterator[Site]:
    """Yield a desk in this folder, with mail and one letter of this client that waits for the person."""
    robin = Person(folder)
    robin.live()
    assert robin.run("init").code == 0
    assert robin.run("import", str(SAMPLE)).code == 0
    provider = SharedDesk(lambda: load(robin.environment, robin.folder, robin.folder))
    listing = load_listing("all", provider)
    calls = Calls(CONTRACT, listing["arguments"], provider.desk, provider.close)
    begin = [
        request("initialize", {**INITIALIZE, "clientInfo": client}, id=1),
        request("tools/call", {"name": "send_email", "arguments": LETTER}, id=2),
    ]
    *_, (sent,), _ = send_to_ours(begin, listing, calls)
    yield Site(listing, calls, sent["result"]["structuredContent"]["letter"])
    ConfiguredDesk.close(provider)


LETTER = {"to": ["ann@example.org"], "subject": "Tea", "body": "At four?"}
CLIENT = {"name": "claude", "version": "1"}
INITIALIZE: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": CLIENT,
}
ENVELOPE: dict[str, Any] = {
    protocol.VERSION_KEY: "2026-07-28",
    protocol.CAPABILITIES_KEY: {},
    protocol.CLIENT_KEY: CLIENT,
}


def request(method: Any, params: Any = None, **fields: Any) -> bytes:
    """Return a message as a line."""
    body = {"jsonrpc": "2.0", "method": method, **fields}
    return json.dumps(body if params is None else {**body, "params": params}).encode()


# Known differences


def compare(lines: Sequence[bytes], ours: Answers, sdk: Answers) -> None:
    """Fail where the two servers answer differently, and the difference is not a known one."""
    for line, our_answers, sdk_answers in zip([*lines, END], ours, sdk, strict=True):
        left, right = (sorted(map(plain, side)) for side in (our_answers, sdk_answers))
        if left != right and not is_known(line, our_answers, sdk_answers):
            raise AssertionError(f"{line[:300]!r}\n  ours: {left}\n  SDK:  {right}")


def plain(message: Message) -> str:
    """Return a message without what differs from one moment to the next."""
    if message.get("method") == "notifications/progress":
        message["params"]["progress"] = float(message["params"]["progress"])
    text = MARK.sub("mark", json.dumps(message, sort_keys=True))
    return LETTER_ID.sub("letter", FOLDER.sub("folder", text))


def is_known(line: bytes, ours: list[Message], sdk: list[Message]) -> bool:
    """Return whether two answers to a line may differ; here it says why."""
    if line == END:
        return False
    our_error, sdk_error = ([each.get("error") for each in side] for side in (ours, sdk))
    # A request that does not parse is answered, if its id can be read; the SDK leaves the client waiting.
    if our_error == [{"code": protocol.INVALID_REQUEST, "message": "Invalid message"}]:
        return not sdk
    if len(ours) != 1 or len(sdk) != 1 or not our_error[0]:
        return False
    code, found = our_error[0]["code"], json.loads(line.decode("utf-8", "replace"))
    # A method that is not served is unknown, whatever its parameters; the SDK looks at the parameters first.
    if code == protocol.METHOD_NOT_FOUND and sdk_error[0]:
        return sdk_error[0]["code"] == protocol.INVALID_PARAMS and found["method"] in UNSERVED
    # The SDK takes "yes" for true and 1.0 for 1; we take only what the protocol's schema has.
    # Postroom asks a client for no input, and takes no answer to that; the SDK reads past it.
    return code == protocol.INVALID_PARAMS and is_coerced(found)


UNSERVED = (
    *("completion/complete", "prompts/get", "logging/setLevel", "subscriptions/listen"),
    *("resources/subscribe", "resources/unsubscribe"),
)


def is_coerced(message: Message) -> bool:
    """Return whether a request has a value of another type than its schema says, that the SDK converts."""
    params = message["params"]
    token = at(params, "_meta", "progressToken")
    return (
        isinstance(token, bool | float)
        or bool(at(params, "inputResponses"))
        or isinstance(at(params, "capabilities", "roots", "listChanged"), int | float | str)
        or isinstance(at(params, "task", "ttl"), float | str | bool)
    )


def at(value: object, *names: str) -> object:
    """Return what an object has under these names, one in the other; else nothing."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


# Made-up sessions

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
ODD: st.SearchStrategy[Any] = (
    st.sampled_from([None, True, 0, 1.0, "", "x", [], {}, [{}], {"x": 1}]) | JSON
)
IDS = st.sampled_from([1, 2, 3, "1", "2", "x", "", 0, -1, 10**20])
ANY_ID = st.one_of(IDS, IDS, IDS, ODD)
METHODS = st.sampled_from(
    [
        *("ping", "tools/list", "tools/call", "tools/call", "tools/call", "resources/list"),
        *("resources/read", "resources/templates/list", "prompts/list", "server/discover"),
        *("initialize", *UNSERVED, "tasks/list", "nonsense", "", "notifications/initialized"),
    ]
)


def mutated(value: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for an object in which one field is odd, missing or new."""

    def change(name: str, odd: object, how: str) -> dict[str, Any]:
        if how == "drop":
            return {key: kept for key, kept in value.items() if key != name}
        return {**value, name: odd}

    names = st.sampled_from([*value, "new", "inputResponses", "requestState", "task"])
    return st.builds(change, names, ODD, st.sampled_from(["drop", "set"])) | st.just(value)


META = st.one_of(
    st.just({"progressToken": 7}),
    st.just({}),
    mutated({"progressToken": "t"}),
    ODD,
)
ENVELOPES = st.one_of(
    st.just(ENVELOPE),
    st.just({**ENVELOPE, "progressToken": 7}),
    mutated(ENVELOPE),
    st.builds(lambda odd: {**ENVELOPE, protocol.VERSION_KEY: odd}, st.sampled_from(["2025-11-25", "2099-01-01", "", 5])),
    mutated({"name": "a", "version": "1", "title": "A", "icons": [{"src": "x"}]}).map(lambda info: {**ENVELOPE, protocol.CLIENT_KEY: info}),
    mutated({"roots": {}, "sampling": {"tools": {}}, "experimental": {"x": {}}, "elicitation": {"form": {}}, "extensions": {"x": {}}}).map(lambda capabilities: {**ENVELOPE, protocol.CAPABILITIES_KEY: capabilities}),
    st.sampled_from(["debug", "loud", 5]).map(lambda level: {**ENVELOPE, "io.modelcontextprotocol/logLevel": level}),
)  # fmt: skip
CAPABILITIES = mutated({"roots": {"listChanged": True}, "sampling": {}, "tasks": {"requests": {"sampling": {"createMessage": {}}}}, "experimental": {"x": {}}, "elicitation": {"url": {}}})  # fmt: skip
HELLO = st.one_of(
    st.just(INITIALIZE),
    mutated(INITIALIZE),
    CAPABILITIES.map(lambda found: {**INITIALIZE, "capabilities": found}),
    mutated({"name": "a", "version": "1", "icons": [{"src": "x", "sizes": ["1"], "theme": "dark"}]}).map(lambda info: {**INITIALIZE, "clientInfo": info}),
    st.sampled_from(["2024-11-05", "2025-03-26", "2026-07-28", "1.0", ""]).map(lambda version: {**INITIALIZE, "protocolVersion": version}),
)  # fmt: skip


def calls(letter: str) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for the parameters of `tools/call`."""
    made: list[dict[str, Any]] = [
        {"name": "letter_status"},
        {"name": "letter_status", "arguments": {"id": letter}},
        {"name": "letter_status", "arguments": {"id": letter, "wait": 20}},
        {"name": "letter_status", "arguments": {"id": "gone", "wait": 20}},
        {"name": "letter_status", "arguments": {"id": 5, "wait": 99, "x": 1}},
        {"name": "send_email", "arguments": LETTER},
        {"name": "send_email", "arguments": {}},
        {"name": "search_email", "arguments": {"query": "tea"}},
        {"name": "get_email", "arguments": {"id": "0123456789abcdef"}},
        {"name": "no_tool", "arguments": {}},
        {"name": "no\ntool"},
    ]
    return st.one_of(st.sampled_from(made), st.sampled_from(made).flatmap(mutated))


def reads(letter: str) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for the parameters of `resources/read`."""
    uris = [
        f"letter://{letter}",
        "letter://x",
        "letter://",
        "message://x",
        "file:///etc/passwd",
        "x",
        "",
    ]
    return mutated({"uri": "letter://y"}) | st.sampled_from(uris).map(lambda uri: {"uri": uri})


def parameters(method: str, letter: str) -> st.SearchStrategy[Any]:
    """Return a strategy for the parameters of a method, right or wrong, in either era."""
    own = {"tools/call": calls(letter), "resources/read": reads(letter), "initialize": HELLO}
    base = own.get(method, st.sampled_from([{}, {"cursor": "x"}, {"cursor": 5}, {"x": 1}]))
    with_meta = st.builds(lambda params, meta: {**params, "_meta": meta}, base, META)
    with_envelope = st.builds(lambda params, meta: {**params, "_meta": meta}, base, ENVELOPES)
    return st.one_of(base, base, with_meta, with_envelope, with_envelope, st.none(), ODD)


def messages(letter: str) -> st.SearchStrategy[bytes]:
    """Return a strategy for lines that are JSON-RPC messages, or nearly."""
    made = METHODS.flatmap(
        lambda method: st.builds(
            lambda params, id: request(method, params, id=id), parameters(method, letter), ANY_ID
        )
    )
    cancel = st.builds(lambda id: request("notifications/cancelled", {"requestId": id}), ANY_ID)
    notices = st.builds(
        request,
        st.sampled_from(
            [
                *("notifications/initialized", "notifications/progress", "notifications/x"),
                "notifications/roots/list_changed",
            ]
        ),
        st.none() | ODD | st.just({"_meta": 5}),
    )
    answers = st.sampled_from(
        [
            b'{"jsonrpc":"2.0","id":1,"result":{}}',
            b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}',
            b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}',
            b'{"jsonrpc":"2.0","id":1}',
        ]
    )
    odd = st.builds(
        lambda message, odd: json.dumps({**json.loads(message), **odd}).encode(),
        made,
        st.dictionaries(st.sampled_from(["jsonrpc", "id", "method", "params", "result", "extra"]), ODD, max_size=2),
    )  # fmt: skip
    return st.one_of(made, made, made, made, cancel, notices, answers, odd)


def junk(letter: str) -> st.SearchStrategy[bytes]:
    """Return a strategy for lines that are no messages."""
    whole = messages(letter)
    return st.one_of(
        st.binary(max_size=40).map(lambda raw: raw.replace(b"\n", b"").replace(b"\r", b"")),
        JSON.map(lambda value: json.dumps(value).encode()),
        st.lists(whole, max_size=2).map(lambda batch: b"[" + b",".join(batch) + b"]"),
        st.builds(lambda line, at: line[: at % (len(line) + 1)], whole, st.integers(0, 500)),
        st.builds(lambda line, raw: line + raw, whole, st.sampled_from([b" ", b"x", b"{}", b"\t", b"\x00", b","])),
        st.builds(lambda raw, line: raw + line, st.sampled_from([b" ", b"\xef\xbb\xbf", b"\x00", b"\xff"]), whole),
        st.sampled_from([1, 2, 100, 190, 198, 199, 200, 201, 300, 5000]).map(nested),
        st.sampled_from(
            [
                request("tools/call", {"name": "letter_status", "arguments": {"id": "\ud800"}}, id=1),
                request("tools/call", {"name": "letter_status", "arguments": {"id": "x" * 1_000_000}}, id=2),
                request("ping", {"x": float("nan")}, id=3),
                b'{"jsonrpc":"2.0","id":1,"method":"ping","id":2}',
                b'{"jsonrpc":"2.0","id":4,"method":"ping","params":{"x":"\xff\xfe"}}',
                b'{"jsonrpc":"2.0","id":4,"method":"pi\xffng"}',
                b'{"jsonrpc":"2.0","id":' + b"9" * 5_000 + b',"method":"ping"}',
                b'{"jsonrpc":"2.0","id":5,"method":"ping","params":{"x":1e999}}',
                b"",
                b" ",
                b"{}",
                b"[]",
                b"null",
            ]
        ),
    )  # fmt: skip


def nested(depth: int) -> bytes:
    """Return a request with a list in a list, so often."""
    deep = b"[" * depth + b"]" * depth
    return b'{"jsonrpc":"2.0","id":9,"method":"ping","params":{"x":' + deep + b"}}"


def sessions(letter: str) -> st.SearchStrategy[list[bytes]]:
    """Return a strategy for the lines of a session."""
    first = st.sampled_from(
        [
            [],
            [request("initialize", INITIALIZE, id=0)],
            [
                request("initialize", INITIALIZE, id=0),
                request("notifications/initialized"),
            ],
            [request("server/discover", {"_meta": ENVELOPE}, id=0)],
        ]
    )
    line = st.one_of(messages(letter), messages(letter), messages(letter), junk(letter))
    return st.builds(lambda start, rest: start + rest, first, st.lists(line, max_size=8))


@pytest.mark.timeout(900)
@settings(
    max_examples=SESSIONS, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(data=st.data())
def test_made_up_sessions_are_answered_as_by_the_sdk(site: Site, data: st.DataObject) -> None:
    lines = data.draw(sessions(site.letter))
    ours = send_to_ours(lines, site.listing, site.calls)
    compare(lines, ours, send_to_sdk(lines, site.listing, site.calls))


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
def test_recorded_sessions_are_answered_as_by_the_sdk(file: Path, tmp_path: Path) -> None:
    lines = file.read_bytes().splitlines()
    client = re.search(rb'clientInfo":({[^}]*})', lines[0])
    assert client
    about = json.loads(client[1])
    with (
        open_site(tmp_path / "robin1", about) as first,
        open_site(tmp_path / "robin2", about) as second,
    ):
        ours = send_to_ours(for_site(lines, first), first.listing, first.calls)
        sdk = send_to_sdk(for_site(lines, second), second.listing, second.calls)
    compare(lines, ours, sdk)
    answers = [answer for each in ours[:-1] for answer in each if "id" in answer]
    assert len(answers) == sum(b'"jsonrpc"' in line and b'"id":' in line for line in lines)
    assert not any("error" in answer or answer["result"].get("isError") for answer in answers)


def for_site(lines: Sequence[bytes], site: Site) -> list[bytes]:
    """Return recorded lines with a letter of this site."""
    return [line.replace(b"{letter}", site.letter.encode()) for line in lines]
