"""Signing in to Gmail: the browser, the paste, what is kept, and what is refused."""

import json
import os
import re
import shlex
import stat
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from tests.conftest import Outcome, Person
from tests.gmail.double import Gmail
from tests.gmail.people import at_gmail, keep
from tests.narrow import present

BASE = "https://www.googleapis.com/auth/gmail."
# A browser that goes where it is told, and where that leads.
BROWSER = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1]).read()"


@pytest.fixture
def token(person: Person, service: Gmail) -> Path:
    """The place of a token that is not there yet, and a client to get it with."""
    file = at_gmail(person, service, signed_in=False)
    keep(file.with_name("credentials.json"), service.client())
    person.environment["BROWSER"] = f"{sys.executable} -c {shlex.quote(BROWSER)} %s"
    return file


def test_signing_in_by_the_browser_keeps_a_token_for_its_owner_alone(
    person: Person, service: Gmail, token: Path
) -> None:
    done = person.run("auth", "gmail")
    assert done.code == 0, done.err
    assert "Account: you@example.org" in done.out
    assert "Allows:  read, draft, send, label" in done.out
    kept = json.loads(token.read_text())
    # What google-auth's `Credentials.to_json` writes.
    fields = {
        "token",
        "refresh_token",
        "token_uri",
        "client_id",
        "client_secret",
        "scopes",
        "expiry",
    }
    assert fields <= kept.keys()
    assert kept["scopes"] == [f"{BASE}modify"]
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    asked = next(r for r in service.requests if r.path == "/o/oauth2/auth")
    assert asked.query["prompt"] == ["consent"]
    assert asked.query["access_type"] == ["offline"]
    redirect = urllib.parse.urlsplit(asked.query["redirect_uri"][0])
    assert redirect.hostname in {"localhost", "127.0.0.1"}
    assert present(redirect.port) > 1023
    assert person.run("search", "").code == 0


def test_nothing_that_was_agreed_to_stands_in_what_is_printed(
    person: Person, service: Gmail, token: Path
) -> None:
    done = person.run("auth", "gmail")
    kept = json.loads(token.read_text())
    for secret in ("token", "refresh_token", "client_secret"):
        assert kept[secret] not in done.out + done.err


@pytest.mark.parametrize(
    ("level", "scopes", "allows"),
    [
        ("read", ["readonly"], "read (it cannot send)"),
        ("draft", ["compose", "readonly"], "read, draft, send"),
        ("send", ["compose", "readonly"], "read, draft, send"),
        ("modify", ["modify"], "read, draft, send, label"),
    ],
)
def test_each_level_asks_for_the_least_and_says_whether_it_can_send(
    person: Person, service: Gmail, token: Path, level: str, scopes: list[str], allows: str
) -> None:
    done = person.run("auth", "gmail", "--scopes", level)
    assert json.loads(token.read_text())["scopes"] == [f"{BASE}{scope}" for scope in scopes]
    assert f"Allows:  {allows}\n" in done.out
    assert ("only --scopes read cannot" in " ".join(done.err.split())) == (level != "read")


def test_where_letters_leave_as_messages_the_right_to_send_is_enough(
    person: Person, service: Gmail, token: Path
) -> None:
    file = person.folder / ".config" / "postroom" / "postroom.toml"
    file.parent.mkdir(parents=True)
    file.write_text('[gmail]\nsending = "message"\n')
    assert person.run("auth", "gmail", "--scopes", "send").code == 0
    assert json.loads(token.read_text())["scopes"] == [f"{BASE}readonly", f"{BASE}send"]


@pytest.mark.parametrize("what", ["address", "code"])
def test_without_a_browser_the_address_or_the_code_is_pasted(
    person: Person, service: Gmail, token: Path, what: str
) -> None:
    done = paste_at_terminal(person, lambda shown: pasted(shown, what))
    assert done.code == 0, done.out
    assert "Account: you@example.org" in click.unstyle(done.out)
    assert json.loads(token.read_text())["refresh_token"]


def pasted(address: str, what: str = "address") -> str:
    """Go to an address as a browser elsewhere would, and return where it ends, or the code in it."""

    class Stays(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    try:
        urllib.request.build_opener(Stays).open(address)
    except urllib.error.HTTPError as moved:
        end = moved.headers["Location"]
        moved.close()
    if what == "address":
        return end
    return urllib.parse.parse_qs(urllib.parse.urlsplit(end).query)["code"][0]


def paste_at_terminal(person: Person, answer: Callable[[str], str]) -> Outcome:
    return person.at_terminal(
        "auth", "gmail", "--no-browser",
        answers=[("Paste that address", lambda said: answer(present(re.search(r"http://127\S+", said))[0]) + "\n")],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("http://localhost/?error=access_denied", "access_denied"),
        ("http://localhost/?state=another&code=abc", "another sign-in"),
        ("http://localhost/?code=abc", "another sign-in"),
        ("http://localhost/?state=&code=abc", "another sign-in"),
        ("localhost/?code=abc", "another sign-in"),
        ("http://localhost/", "no code"),
        ("", "not a code"),
        ("wrong-code", "does not accept this code"),
    ],
)
def test_what_was_pasted_wrongly_is_said_and_nothing_is_kept(
    person: Person, service: Gmail, token: Path, typed: str, says: str
) -> None:
    done = paste_at_terminal(person, lambda _shown: typed)
    assert done.code != 0
    assert says in " ".join(done.out.split())
    assert not token.exists()


def test_leaving_googles_page_without_agreeing_keeps_nothing(
    person: Person, service: Gmail, token: Path
) -> None:
    service.denies = True
    done = person.run("auth", "gmail")
    assert done.code == 6
    assert "access_denied" in done.err
    assert "test users" in " ".join(done.err.split())
    assert not token.exists()


def test_what_was_not_ticked_on_googles_page_is_named(
    person: Person, service: Gmail, token: Path
) -> None:
    service.grants = (f"{BASE}readonly",)
    done = person.run("auth", "gmail", "--scopes", "send")
    assert "Not allowed on Google's page: draft, send." in " ".join(done.err.split())
    assert json.loads(token.read_text())["scopes"] == [f"{BASE}readonly"]


def test_the_seven_days_of_googles_testing_mode_are_explained(
    person: Person, service: Gmail, token: Path
) -> None:
    assert "seven days" in " ".join(person.run("auth", "gmail").err.split())


def test_status_says_as_whom_for_what_and_where(person: Person, service: Gmail) -> None:
    file = at_gmail(person, service, scopes=(f"{BASE}readonly",))
    done = person.run("auth", "gmail", "--status", "--json")
    assert done.code == 0
    assert done.json["address"] == "you@example.org"
    assert done.json["token"] == str(file)
    assert done.json["allows"] == ["read"]


def test_an_account_that_is_somebody_elses_is_noticed(
    person: Person, service: Gmail, token: Path
) -> None:
    person.environment["POSTROOM_ADDRESS"] = "ada@example.com"
    done = person.run("auth", "gmail")
    assert done.code == 0
    assert "is ada@example.com, but it is not" in " ".join(done.err.split())
    person.run("init")
    checks = person.run("doctor", "--json").json["checks"]
    assert any("ada@example.com" in check["remedy"] for check in checks)


def test_a_sign_in_and_a_sign_out_leave_lines_in_the_log(
    person: Person, service: Gmail, token: Path
) -> None:
    person.run("init")
    assert person.run("auth", "gmail").code == 0
    assert person.run("auth", "gmail", "--revoke").code == 0
    lines = person.run("audit", "--json").json["actions"]
    assert [line["action_type"] for line in lines if "sign" in line["action_type"]] == [
        "sign_in",
        "sign_out",
    ]


def test_signing_in_without_a_desk_makes_none(person: Person, service: Gmail) -> None:
    at_gmail(person, service, signed_in=False)
    del person.environment["POSTROOM_STATE"], person.environment["VAULT_PATH"]
    done = person.run("auth", "gmail")
    assert done.code == 2
    assert "postroom init" in done.err
    assert not (person.folder / "vault" / ".postroom").exists()


def test_why_nobody_is_signed_in_any_more_is_said_each_time(person: Person, service: Gmail) -> None:
    at_gmail(person, service)
    service.revoke()
    for _ in range(2):
        done = person.run("search", "")
        assert done.code == 6
        assert "seven days" in " ".join(done.err.split())


def test_status_of_a_token_that_google_no_longer_takes_says_what_to_do(
    person: Person, service: Gmail
) -> None:
    at_gmail(person, service)
    service.revoke()
    done = person.run("auth", "gmail", "--status")
    assert done.code == 6
    assert "postroom auth gmail" in done.err


def test_revoking_has_google_forget_it_and_removes_the_file(person: Person, service: Gmail) -> None:
    file = at_gmail(person, service)
    done = person.run("auth", "gmail", "--revoke")
    assert done.code == 0
    assert not file.exists()
    assert any(request.path == "/revoke" for request in service.requests)
    assert person.run("auth", "gmail", "--revoke").code == 6


def test_a_revocation_that_google_did_not_hear_of_keeps_the_file(
    person: Person, service: Gmail
) -> None:
    file = at_gmail(person, service)
    service.fail("POST /revoke", status=503, times=9)
    assert person.run("auth", "gmail", "--revoke").code == 8
    assert file.exists()


def test_a_client_of_the_wrong_kind_is_refused(person: Person, service: Gmail, token: Path) -> None:
    keep(token.with_name("credentials.json"), {"web": {"client_id": "a", "client_secret": "b"}})
    done = person.run("auth", "gmail")
    assert done.code == 2
    assert "web application" in done.err
    assert "Desktop app" in done.err


def test_a_client_that_leads_to_another_page_than_googles_is_refused(
    person: Person, service: Gmail, token: Path
) -> None:
    client = service.client()
    client["installed"]["auth_uri"] = "https://accounts.google.com.example.net/o/oauth2/auth"
    keep(token.with_name("credentials.json"), client)
    done = person.run("auth", "gmail")
    assert done.code == 2
    assert "not Google's" in done.err


def test_a_client_that_is_named_is_kept_where_it_is_looked_for(
    person: Person, service: Gmail, token: Path
) -> None:
    kept = token.with_name("credentials.json")
    kept.unlink()
    keep(person.folder / "client_secret_1.json", service.client(), mode=0o644)
    done = person.run("auth", "gmail", "--credentials", "client_secret_1.json")
    assert done.code == 0, done.err
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert json.loads(kept.read_text()) == service.client()
    assert person.run("auth", "gmail", "--credentials", "missing.json").code == 3
    keep(person.folder / "wrong.json", {"web": {}})
    assert person.run("auth", "gmail", "--credentials", "wrong.json").code == 2
    assert json.loads(kept.read_text()) == service.client()


def test_without_a_client_it_says_where_one_belongs(person: Person, service: Gmail) -> None:
    at_gmail(person, service, signed_in=False)
    done = person.run("auth", "gmail")
    assert done.code == 6
    said = " ".join(done.err.split())
    assert "credentials.json" in said
    assert "Desktop app" in said


def test_a_token_that_others_may_read_is_refused_with_the_remedy(
    person: Person, service: Gmail
) -> None:
    file = at_gmail(person, service)
    file.chmod(0o644)
    done = person.run("search", "")
    assert done.code == 4
    assert f"chmod 600 {file}" in " ".join(done.err.split())
    assert not service.requests


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_token_of_another_user_is_refused(person: Person, service: Gmail) -> None:
    file = at_gmail(person, service)
    os.chown(file, 65534, -1)
    done = person.run("search", "")
    assert done.code == 4
    assert "another user" in done.err


def test_the_token_of_a_program_in_another_language_is_read_and_kept_in_its_spelling(
    person: Person, service: Gmail
) -> None:
    file = at_gmail(person, service)
    theirs = service.token(expires_in=-60)
    node = {
        "access_token": theirs["token"],
        "refresh_token": theirs["refresh_token"],
        "scope": " ".join(theirs["scopes"]),
        "token_type": "Bearer",
        "expiry_date": 1,
        "note": "theirs",
    }
    keep(file, node)
    keep(file.with_name("credentials.json"), service.client())
    assert person.run("search", "").code == 0
    kept = json.loads(file.read_text())
    assert kept["access_token"] == kept["token"] != theirs["token"]
    assert kept["expiry_date"] > 1
    assert kept["note"] == "theirs"


def test_of_several_accounts_each_has_a_token_of_its_own(
    person: Person, service: Gmail, token: Path
) -> None:
    keep(token, service.token())
    file = person.folder / ".config" / "postroom" / "postroom.toml"
    file.parent.mkdir(parents=True)
    accounts = """default_account = "work"
[accounts.work]
provider = "gmail"
[accounts.home]
provider = "{}"
address = "home@example.org"
"""
    del person.environment["POSTROOM_PROVIDER"]
    file.write_text(accounts.format("local"))
    assert person.run("search", "").code == 0  # the only one at Gmail
    file.write_text(accounts.format("gmail"))
    for name in ("work", "home"):
        missing = person.run("search", "--account", name, "")
        assert missing.code == 6
        assert f"postroom auth gmail --account {name}" in " ".join(missing.err.split())
        assert person.run("auth", "gmail", "--account", name).code == 0
        assert token.with_name(f"token-{name}.json").exists()
        assert person.run("search", "--account", name, "").code == 0


def test_after_a_token_was_set_aside_none_in_the_working_directory_takes_its_place(
    person: Person, service: Gmail
) -> None:
    file = at_gmail(person, service)
    keep(person.folder / "token.json", service.token())
    assert person.run("auth", "gmail", "--revoke").code == 0
    assert not file.exists()
    for _ in range(2):
        assert person.run("search", "").code == 6


def test_a_token_in_the_working_directory_serves_where_there_never_was_another(
    person: Person, service: Gmail
) -> None:
    at_gmail(person, service, signed_in=False)
    keep(person.folder / "token.json", service.token())
    assert person.run("search", "").code == 0


def test_strangers_at_the_door_do_not_disturb_the_one_who_signs_in(
    person: Person, service: Gmail, token: Path
) -> None:
    browser = (
        "import socket, sys, time, urllib.parse, urllib.request as r\n"
        "q = urllib.parse.parse_qs(urllib.parse.urlsplit(sys.argv[1]).query)\n"
        "back = urllib.parse.urlsplit(q['redirect_uri'][0])\n"
        "held = socket.create_connection((back.hostname, back.port))\n"
        "for path in ('/favicon.ico', '/?state=wrong&code=x'):\n"
        "    try: r.urlopen(f'http://{back.netloc}{path}').read()\n"
        "    except OSError: pass\n"
        "r.urlopen(sys.argv[1]).read()\n"
    )
    (person.folder / "browser.py").write_text(browser)
    person.environment["BROWSER"] = f"{sys.executable} {person.folder}/browser.py %s"
    done = person.run("auth", "gmail")
    assert done.code == 0, done.err
    assert json.loads(token.read_text())["refresh_token"]
