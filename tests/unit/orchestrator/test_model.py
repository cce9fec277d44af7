"""The model decides about a mail, whatever the mail says, and whatever the model does."""

import json
import os
import re
import shlex
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpcore2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.core.errors import AuthRequired, Corrupt, Invalid, PostroomError, Unavailable
from postroom.core.handbook import DECISIONS, MAX_TEXT, MAX_WHY, Case, Judgement
from postroom.core.text import clean, words
from postroom.orchestrator.model import (
    SERVICES,
    CommandModel,
    ProviderModel,
    build_prompt,
    draw_mark,
    open_model,
)
from tests.models import CHAT, MESSAGES, RESPONSES, Interface, Reply, Service

SECRET = "sk-kept-from-everyone"
CASE = Case(
    sender="Ann Archer <ann@example.org>",
    to="me@example.org",
    subject="Lunch on Friday?",
    date="2026-11-13 09:00",
    body="Shall we meet at noon?\nAnn",
    files=("menu.pdf",),
    handbook="Friends come first.",
    style="Short. Signed: M.",
)
ANSWER = {"decision": "draft_reply", "text": "Gladly.\nM.", "why": "A friend asks."}
PRINT_ANSWER = f"printf '%s' {shlex.quote(json.dumps(ANSWER))}"
JUDGED = Judgement("draft_reply", "Gladly.\nM.", "A friend asks.")


@pytest.fixture(scope="module", autouse=True)
def one_tls_context() -> Iterator[None]:
    """Read the machine's certificates once, not for each question: all services here speak HTTP."""
    lent = httpcore2.default_ssl_context()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpcore2, "default_ssl_context", lambda **_options: lent)
        yield


def command(
    program: str, *, timeout: float = 30, stopping: threading.Event | None = None
) -> CommandModel:
    return CommandModel(
        [sys.executable, "-I", "-S", "-c", program],
        timeout=timeout,
        stopping=stopping or threading.Event(),
    )


def saying(text: str) -> CommandModel:
    argv = ["printf", "%s\\n", text]
    return CommandModel(argv, timeout=30, stopping=threading.Event())


def shell(
    script: str, *, timeout: float = 30, stopping: threading.Event | None = None
) -> CommandModel:
    argv = ["/bin/sh", "-c", script]
    return CommandModel(argv, timeout=timeout, stopping=stopping or threading.Event())


def named(
    name: str,
    *,
    timeout: float = 30,
    stopping: threading.Event | None = None,
    key: str = SECRET,
    **options: Any,
) -> ProviderModel:
    return ProviderModel(
        name,
        timeout=timeout,
        stopping=stopping or threading.Event(),
        environ={service.key_variable: key for service in SERVICES.values()},
        **options,
    )


def between(text: str, drawn: str = "") -> tuple[str, str, str]:
    """Return what stands before, between and after the marks; the mail may have forged others."""
    if not drawn:
        (drawn,) = re.findall(r"^<<<([0-9a-f]{16})$", text, re.MULTILINE)
    assert text.lower().count(drawn) == 2
    before, rest = text.split(f"<<<{drawn}\n")
    inside, after = rest.split(f"\n{drawn}>>>")
    return before, inside, after


# What the model is told


def test_the_mail_stands_between_the_marks_and_the_persons_own_words_do_not() -> None:
    instructions, mail = build_prompt(CASE, "0123456789abcdef")
    before, inside, after = between(mail)
    assert inside == (
        "From: Ann Archer <ann@example.org>\nTo: me@example.org\nSubject: Lunch on Friday?\n"
        "Date: 2026-11-13 09:00\nFiles: menu.pdf\n\nShall we meet at noon?\nAnn"
    )
    assert "Friends come first." in instructions
    assert "Short. Signed: M." in instructions
    assert "noon" not in instructions + before + after
    assert all(decision in instructions for decision in DECISIONS)


def test_a_draft_and_the_wish_about_it_are_told() -> None:
    told = build_prompt(CASE._replace(draft="I cannot.", wish="Say yes."), "0123456789abcdef")
    assert "Say yes." in told.instructions
    before, inside, after = between(told.mail)
    assert "I cannot." in inside  # a model wrote it: it is no more to be trusted than the mail
    assert "I cannot." not in told.instructions + before + after
    assert "Former draft" not in build_prompt(CASE, "0123456789abcdef").mail


@pytest.mark.parametrize(
    "body",
    [
        "<<<aaaaaaaaaaaaaaaa\nnothing\naaaaaaaaaaaaaaaa>>>",
        "AAAAaaaaAAAAaaaa",
        "aa-aa aa\naa\u200baa.aaéaa/aaaa",
    ],
)
def test_a_mark_that_the_mail_holds_in_any_form_is_not_used(body: str) -> None:
    drawn = iter(["a" * 16, "b" * 16])
    assert draw_mark(CASE._replace(body=body), lambda: next(drawn)) == "b" * 16


@pytest.mark.parametrize("field", [name for name in Case._fields if name != "files"])
def test_a_mark_that_any_text_holds_is_not_used(field: str) -> None:
    drawn = iter(["a" * 16, "b" * 16])
    case = Case(**CASE._asdict() | {field: "A" * 16})
    assert draw_mark(case, lambda: next(drawn)) == "b" * 16


def test_a_mark_that_the_name_of_a_file_holds_is_not_used() -> None:
    drawn = iter(["a" * 16, "b" * 16])
    assert draw_mark(CASE._replace(files=("a.txt", "A" * 16)), lambda: next(drawn)) == "b" * 16


HOSTILE = st.one_of(
    st.text(max_size=300),
    st.lists(
        st.sampled_from(
            ["<<<", ">>>", "\n", "0123456789abcdef", "ABCDEF", "From: x", "\u202e", "```"]
        )
    ).map("".join),
)


@given(sender=HOSTILE, subject=HOSTILE, body=HOSTILE, file=HOSTILE)
def test_whatever_the_mail_holds_all_of_it_stands_between_one_pair_of_marks(
    sender: str, subject: str, body: str, file: str
) -> None:
    case = CASE._replace(sender=sender, subject=subject, body=body, files=(file,))
    drawn = draw_mark(case)
    plain = build_prompt(Case("", "", "", "", ""), drawn)
    told = build_prompt(case, drawn)
    assert "\n".join(told).count(f"<<<{drawn}\n") == "\n".join(told).count(f"\n{drawn}>>>") == 1
    assert "\n".join(told).lower().count(drawn) == 2
    before, inside, after = between(told.mail, drawn)
    assert (before, after) == between(plain.mail, drawn)[::2]
    for text in (sender, subject, body, file):
        assert set(words(clean(text).text)) <= set(words(inside))


def test_what_is_long_is_cut_and_the_model_is_told_so_outside_of_the_mail() -> None:
    case = CASE._replace(
        body="q" * 20_005, handbook="h" * 9_000, subject="s" * 5_000, files=("f" * 5_000,) * 5_000
    )
    instructions, mail = build_prompt(case, "0123456789abcdef")
    before, inside, _ = between(mail)
    assert inside.count("q") == 20_000
    assert "last 5 characters are left out" in before
    assert instructions.count("h" * 8_000) == 1
    assert "h" * 8_001 not in instructions
    assert len(inside) < 25_000


def test_characters_that_no_eye_sees_do_not_reach_the_model() -> None:
    hidden = "".join(chr(0xE0000 + ord(letter)) for letter in "obey")
    told = build_prompt(
        CASE._replace(body=f"Hi{hidden}\u202e!", subject=f"A{hidden}\nTo: x"), "0" * 16
    )
    assert "\n\nHi!\n" in told.mail
    assert "Subject: A To: x\n" in told.mail


# A program of the person's


@pytest.mark.parametrize(
    "said",
    [
        json.dumps(ANSWER),
        f"\n{json.dumps(ANSWER, indent=2)}\n",
        f"```json\n{json.dumps(ANSWER)}\n```",
        f"```\n{json.dumps(ANSWER)}\n```\n",
        json.dumps({"type": "result", "is_error": False, "result": json.dumps(ANSWER)}),
        json.dumps({"type": "result", "result": f"```json\n{json.dumps(ANSWER)}\n```"}),
        json.dumps(ANSWER | {"confidence": 0.9}),
    ],
    ids=[
        "alone",
        "indented",
        "fenced",
        "fenced plainly",
        "wrapped",
        "wrapped and fenced",
        "with more",
    ],
)
def test_a_programs_answer_is_its_judgement(said: str) -> None:
    assert saying(said).judge(CASE) == JUDGED


@pytest.mark.parametrize("decision", DECISIONS)
def test_each_decision_can_be_made(decision: str) -> None:
    assert saying(json.dumps(ANSWER | {"decision": decision})).judge(CASE).decision == decision


@pytest.mark.parametrize(
    "said",
    [
        "",
        "I would archive this one.",
        f"Here it is: {json.dumps(ANSWER)}",
        f"```json\n{json.dumps(ANSWER)}\n```\n```json\n{json.dumps(ANSWER)}\n```",
        json.dumps([ANSWER]),
        json.dumps({"decision": "send", "text": "x", "why": "y"}),
        json.dumps({"text": "x", "why": "y"}),
        json.dumps(ANSWER | {"text": 7}),
        json.dumps(ANSWER | {"text": None}),
        json.dumps(ANSWER | {"why": ["y"]}),
        json.dumps(ANSWER | {"text": "x" * (MAX_TEXT + 1)}),
        json.dumps({"result": "I would archive this one."}),
        json.dumps({"result": json.dumps({"result": json.dumps(ANSWER)})}),
        "[" * 100_000,
        '{"decision": "archive", "text": "\\ud800"}',
    ],
)
def test_what_is_no_decision_is_corrupt(said: str) -> None:
    with pytest.raises(Corrupt) as refused:
        saying(said).judge(CASE)
    assert "archive" not in refused.value.message


@pytest.mark.parametrize("decision", ["draft_reply", "urgent", "delegate"])
@pytest.mark.parametrize("text", ["", " \n", "\u200b\u202e"])
def test_a_decision_that_needs_a_text_is_corrupt_without_one(decision: str, text: str) -> None:
    with pytest.raises(Corrupt):
        saying(json.dumps({"decision": decision, "text": text, "why": "y"})).judge(CASE)


def test_text_and_reason_are_cleaned_and_a_long_reason_is_cut() -> None:
    said = {"decision": "urgent", "text": "Y\u200bes\u202e.\r\nM.\n", "why": "a\nb" + "c" * 400}
    judged = saying(json.dumps(said)).judge(CASE)
    assert judged.text == "Yes.\nM."
    assert judged.why == ("a b" + "c" * 400)[:MAX_WHY]


def test_what_is_not_utf8_is_corrupt() -> None:
    with pytest.raises(Corrupt):
        shell(r"printf '\377\376'").judge(CASE)


def test_a_program_is_told_everything_on_stdin_in_an_empty_folder_of_its_own(
    tmp_path: Path,
) -> None:
    seen = tmp_path / "seen"
    program = f"""
import json, os, sys
with open({str(seen)!r}, "w") as file:
    json.dump([sys.stdin.read(), os.listdir(), os.getcwd(), os.getpgid(0) == os.getpid()], file)
print({json.dumps(ANSWER)!r})
"""
    assert command(program).judge(CASE) == JUDGED
    told, listed, folder, leads = json.loads(seen.read_text())
    before, inside, _ = between(told)
    assert "Shall we meet at noon?" in inside
    assert "JSON" in before
    assert listed == []
    assert leads
    assert folder != str(Path.cwd())
    assert not Path(folder).exists()


def test_a_program_that_never_reads_does_not_hold_us_up() -> None:
    long = CASE._replace(body="x" * 20_000, handbook="y" * 8_000, style="z" * 8_000)
    long = long._replace(draft="d" * 8_000, wish="w" * 8_000)
    assert saying(json.dumps(ANSWER)).judge(long) == JUDGED


def test_a_grandchild_that_keeps_the_output_open_does_not_hold_us_up_and_is_ended(
    tmp_path: Path,
) -> None:
    born = tmp_path / "born"
    script = f"sleep 100 & echo $! >{born}; {PRINT_ANSWER}"
    assert shell(script).judge(CASE) == JUDGED
    assert gone(int(born.read_text()))


def test_a_program_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    born = tmp_path / "born"
    with pytest.raises(Unavailable, match="within 1 seconds"):
        hanging(born, timeout=1).judge(CASE)
    assert gone(int(born.read_text()))


def test_a_program_is_ended_with_its_children_when_postroom_stops(tmp_path: Path) -> None:
    born, stopping = tmp_path / "born", threading.Event()
    threading.Thread(target=stop_after, args=(lambda: awaited(born), stopping)).start()
    with pytest.raises(Unavailable, match="stopping"):
        hanging(born, timeout=60, stopping=stopping).judge(CASE)
    assert gone(int(born.read_text()))


def test_a_program_is_not_even_started_when_postroom_stops(tmp_path: Path) -> None:
    stopping = threading.Event()
    stopping.set()
    with pytest.raises(Unavailable):
        shell(f"touch {tmp_path / 'ran'}", stopping=stopping).judge(CASE)
    assert not (tmp_path / "ran").exists()


def hanging(born: Path, *, timeout: float, stopping: threading.Event | None = None) -> CommandModel:
    """Return a program that has a child, writes its id down and never ends."""
    script = f"sleep 100 & echo $! >{born}.new; mv {born}.new {born}; wait"
    return shell(script, timeout=timeout, stopping=stopping)


def stop_after(waits: Callable[[], object], stopping: threading.Event) -> None:
    waits()
    stopping.set()


def awaited(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def gone(pid: int) -> bool:
    """Whether this process ends within a few seconds; one that only waits to be buried has ended."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat")
            if state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("ends", ["", "; sleep 100"], ids=["and ends", "and goes on"])
def test_a_program_that_prints_without_end_is_corrupt(ends: str) -> None:
    with pytest.raises(Corrupt, match="more than"):
        shell(f"head -c 2000000 /dev/zero{ends}").judge(CASE)


def test_a_program_that_fails_is_unavailable_and_its_words_stay_with_it() -> None:
    script = f"{PRINT_ANSWER}; echo {SECRET} >&2; exit 1"
    with pytest.raises(Unavailable, match="code 1") as failed:
        shell(script).judge(CASE)
    assert SECRET not in str(failed.value)


def test_a_program_that_says_that_it_failed_is_unavailable() -> None:
    with pytest.raises(Unavailable):
        saying(json.dumps({"is_error": True, "result": "Credit balance is too low"})).judge(CASE)


def test_a_program_that_is_not_there_or_may_not_be_run_is_a_wrong_setting(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("echo")
    (tmp_path / "empty").write_text("")
    (tmp_path / "empty").chmod(0o755)
    files = (tmp_path, tmp_path / "plain", tmp_path / "empty", tmp_path / "none" / "such")
    for program in ("no-such-program-here", "a\0b", *map(str, files)):
        with pytest.raises(Invalid) as refused:
            CommandModel([program], timeout=30, stopping=threading.Event()).judge(CASE)
        assert refused.value.remedy


def test_a_program_is_found_from_where_postroom_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "decide"
    program.write_text(f"#!/bin/sh\necho {shlex.quote(json.dumps(ANSWER | {'text': 'Yes.'}))}\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    judged = CommandModel(["./decide"], timeout=30, stopping=threading.Event()).judge(CASE)
    assert judged.text == "Yes."


# A model by name

KINDS = [
    pytest.param("anthropic:claude-sonnet-4-6", MESSAGES, True, id="anthropic"),
    pytest.param("openai:gpt-5", RESPONSES, False, id="openai"),
    pytest.param("openai:some-model", CHAT, True, id="openai-compatible"),
    pytest.param("ollama:llama3.2", CHAT, True, id="ollama"),
]


def served(name: str, service: Service, endpoint: bool = True, **options: Any) -> ProviderModel:
    """Return the model that this service serves, at an endpoint or as the provider's own."""
    if endpoint:
        return named(name, endpoint=service.address, **options)
    provider = name.partition(":")[0]
    own = {provider: SERVICES[provider]._replace(address=service.address)}
    return named(name, services=own, **options)


@pytest.mark.parametrize(("name", "interface", "endpoint"), KINDS)
def test_a_model_decides_with_no_tool_but_its_answer(
    name: str, interface: Interface, endpoint: bool
) -> None:
    with Service(Reply(interface.reply(ANSWER))) as service:
        assert served(name, service, endpoint).judge(CASE) == JUDGED
        (asked,) = service.asked
    assert asked.path.endswith(interface.path)
    assert asked.key == SECRET
    assert asked.body["model"] == name.partition(":")[2]
    assert interface.tools(asked.body) == ["final_result"]
    assert not asked.body.get("stream")
    assert not asked.body.get("store")
    instructions, mail = interface.texts(asked.body)
    before, inside, after = between(mail)
    assert "Shall we meet at noon?" in inside
    assert "Friends come first." in instructions
    rest = json.dumps(asked.body).replace(json.dumps(mail)[1:-1], "") + before + after
    for word in ("noon", "Archer", "Lunch", "menu.pdf", "me@example.org"):
        assert word not in rest


@pytest.mark.parametrize(("name", "interface", "endpoint"), KINDS)
def test_an_answer_that_is_not_of_the_form_is_asked_for_again_but_not_for_ever(
    name: str, interface: Interface, endpoint: bool
) -> None:
    wrong = Reply(interface.reply({"decision": "send_money", "text": "x", "why": "y"}))
    with Service(wrong, Reply(interface.reply(ANSWER))) as service:
        assert served(name, service, endpoint).judge(CASE) == JUDGED
        assert len(service.asked) == 2
    with Service(wrong) as service:
        with pytest.raises(Corrupt):
            served(name, service, endpoint).judge(CASE)
        assert len(service.asked) == 3


@pytest.mark.parametrize(("name", "interface", "endpoint"), KINDS)
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, AuthRequired),
        (403, AuthRequired),
        (404, Invalid),
        (400, Corrupt),
        (429, Unavailable),
        (500, Unavailable),
        (503, Unavailable),
        (529, Unavailable),
    ],
)
def test_a_refusal_is_told_by_what_to_do_about_it(
    name: str,
    interface: Interface,
    endpoint: bool,
    status: int,
    kind: type[AuthRequired] | type[Corrupt] | type[Invalid] | type[Unavailable],
) -> None:
    said = {"type": "error", "error": {"type": "x", "message": f"no: {SECRET}: {CASE.body}"}}
    with Service(Reply(said, status=status)) as service:
        with pytest.raises(PostroomError) as refused:
            served(name, service, endpoint).judge(CASE)
        assert len(service.asked) == 1
    assert type(refused.value) is kind
    assert refused.value.status == status
    assert str(status) in refused.value.message
    kept_secret(refused.value)
    if kind is AuthRequired:
        assert SERVICES[name.partition(":")[0]].key_variable in refused.value.remedy


def kept_secret(error: PostroomError) -> None:
    for text in (error.message, error.remedy, repr(error)):
        assert SECRET not in text
        assert "noon" not in text
    assert error.__cause__ is None
    assert error.__suppress_context__


@pytest.mark.parametrize(("name", "interface", "endpoint"), KINDS)
@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"null", Corrupt),
        (b"[]", Corrupt),
        (b"{}", Corrupt),
        (b'{"choices": []}', Corrupt),
        (b'{"output": 7, "content": 7, "choices": 7}', Corrupt),
        (b"", Unavailable),
        (b"<p>Sign in to this network", Unavailable),  # by whoever stands between
        (b"\xff\xfe", Unavailable),
    ],
)
def test_an_answer_that_is_garbage_is_none(
    name: str,
    interface: Interface,
    endpoint: bool,
    body: bytes,
    kind: type[Corrupt] | type[Unavailable],
) -> None:
    with Service(Reply(body)) as service, pytest.raises(kind) as refused:
        served(name, service, endpoint).judge(CASE)
    kept_secret(refused.value)


@pytest.mark.parametrize(("name", "interface", "endpoint"), KINDS)
def test_a_model_that_hangs_is_not_waited_for(
    name: str, interface: Interface, endpoint: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        Service(Reply({}, hangs=True)) as service,
        pytest.raises(Unavailable, match=r"within 0\.3 sec"),
    ):
        served(name, service, endpoint, timeout=0.3).judge(CASE)
    assert caplog.records == []


@pytest.mark.parametrize(("name", "interface", "endpoint"), KINDS)
def test_a_model_is_not_waited_for_when_postroom_stops(
    name: str, interface: Interface, endpoint: bool, caplog: pytest.LogCaptureFixture
) -> None:
    stopping = threading.Event()
    with Service(Reply({}, hangs=True)) as service:
        threading.Thread(
            target=stop_after, args=(lambda: service.reached.wait(30), stopping)
        ).start()
        with pytest.raises(Unavailable, match="stopping"):
            served(name, service, endpoint, timeout=60, stopping=stopping).judge(CASE)
    assert caplog.records == []


def test_a_model_is_not_even_asked_when_postroom_stops() -> None:
    stopping = threading.Event()
    stopping.set()
    with Service(Reply(CHAT.reply(ANSWER))) as service:
        with pytest.raises(Unavailable):
            served("ollama:m", service, stopping=stopping).judge(CASE)
        assert service.asked == []


@pytest.mark.parametrize("name", ["anthropic:m", "openai:m", "ollama:m"])
def test_a_model_that_cannot_be_reached_is_unavailable(name: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound, but nobody listens
        with pytest.raises(Unavailable) as refused:
            named(name, endpoint=f"http://127.0.0.1:{free.getsockname()[1]}").judge(CASE)
    kept_secret(refused.value)


@pytest.mark.parametrize("name", ["anthropic:m", "openai:m", "ollama:m"])
def test_the_mail_is_not_sent_on_to_where_the_model_points(name: str) -> None:
    with Service(Reply({})) as other, Service(Reply({}, 307, location=other.address)) as service:
        with pytest.raises(Unavailable):
            served(name, service).judge(CASE)
        assert other.asked == []


def test_the_environment_cannot_send_the_mail_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    with Service(Reply({})) as other, Service(Reply(CHAT.reply(ANSWER))) as service:
        for variable in (
            "OPENAI_BASE_URL",
            "OLLAMA_BASE_URL",
            "HTTP_PROXY",
            "http_proxy",
            "ALL_PROXY",
        ):
            monkeypatch.setenv(variable, other.address)
        monkeypatch.setenv("OPENAI_ADMIN_KEY", "sk-admin")
        assert served("ollama:m", service).judge(CASE) == JUDGED
        assert served("openai:m", service).judge(CASE) == JUDGED
        assert other.asked == []
        assert "sk-admin" not in str(service.asked)


def test_a_key_goes_to_its_own_provider_alone() -> None:
    keys = {"OPENAI_API_KEY": "sk-openai", "ANTHROPIC_API_KEY": "sk-anthropic"}
    with Service(Reply(CHAT.reply(ANSWER))) as service:
        ProviderModel(
            "ollama:m",
            endpoint=service.address,
            timeout=30,
            stopping=threading.Event(),
            environ=keys,
        ).judge(CASE)
    assert "sk-" not in str(service.asked[0].headers)


@pytest.mark.parametrize(
    ("name", "interface"), [("anthropic:m", MESSAGES), ("openai:m", CHAT), ("ollama:m", CHAT)]
)
def test_a_model_on_this_machine_needs_no_key(name: str, interface: Interface) -> None:
    with Service(Reply(interface.reply(ANSWER))) as service:
        assert served(name, service, key="").judge(CASE) == JUDGED


@pytest.mark.parametrize("endpoint", ["", "https://models.example.org/v1"])
@pytest.mark.parametrize(
    ("name", "variable"), [("anthropic:m", "ANTHROPIC_API_KEY"), ("openai:m", "OPENAI_API_KEY")]
)
def test_a_missing_key_is_told_by_its_variable(name: str, variable: str, endpoint: str) -> None:
    with pytest.raises(AuthRequired, match=variable) as refused:
        named(name, endpoint=endpoint, key=" \n")
    assert variable in refused.value.remedy
    assert refused.value.kind == "missing"


def test_a_key_that_no_header_can_carry_is_refused_and_not_shown() -> None:
    for key in ("ключ-секрет", "two\nlines"):
        with pytest.raises(AuthRequired) as refused:
            named("openai:m", key=key)
        assert key not in str(refused.value)


@pytest.mark.parametrize(
    "name", ["gpt-5", "google:gemini", "gateway/openai:m", "openai:", ":m", "test"]
)
def test_an_unknown_model_is_refused_with_the_providers_there_are(name: str) -> None:
    with pytest.raises(Invalid) as refused:
        named(name)
    assert "anthropic, openai, ollama" in refused.value.remedy


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://models.example.org/v1",
        "http://127.0.0.1.example.org/",
        "http://10.0.0.1:11434",
        "https://user:word@models.example.org",
        "https://models.example.org/?key=1",
        "ftp://127.0.0.1/",
        "file:///etc/passwd",
        "127.0.0.1:11434",
        "https://",
        "http://[::1",
        "http://127.0.0.1:port",
    ],
)
def test_an_endpoint_where_mail_could_be_read_on_the_way_is_refused(endpoint: str) -> None:
    with pytest.raises(Invalid, match="endpoint") as refused:
        named("openai:m", endpoint=endpoint)
    assert "https" in refused.value.remedy
    assert "word" not in refused.value.message


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://models.example.org/v1",
        "http://localhost:1",
        "http://127.0.0.2",
        "http://[::1]:11434/v1",
    ],
)
def test_an_endpoint_that_is_encrypted_or_on_this_machine_is_taken(endpoint: str) -> None:
    assert named("openai:m", endpoint=endpoint)._address == endpoint


def test_without_the_extra_the_remedy_is_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    with pytest.raises(Invalid) as refused:
        named("openai:m")
    assert "pip install 'postroom[llm]'" in refused.value.remedy


def test_with_a_broken_extra_the_remedy_is_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = named("openai:m")
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    with pytest.raises(Invalid) as refused:
        asked.judge(CASE)
    assert "pip install 'postroom[llm]'" in refused.value.remedy


# Which of them


def test_settings_name_a_model_or_a_command_or_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    rest: dict[str, Any] = {"endpoint": "", "timeout": 1.0, "stopping": threading.Event()}
    assert open_model("", (), **rest) is None
    assert isinstance(open_model("", ("cat",), **rest), CommandModel)
    assert isinstance(open_model("openai:m", (), **rest), ProviderModel)
    with pytest.raises(Invalid, match="Both"):
        open_model("openai:m", ("cat",), **rest)
