"""Sixteen senders, four receivers of one name, cleaning up meanwhile, all killed at random: each message once.

All are processes of
the command or servers, as agents have them. What a process was killed over was not answered: it may have
been sent, but not twice, and was not received. The one exception is a server that is killed between the end of its
answer and the mark in the mailbox, two calls of the system: its last message is delivered once more, rather than never.
"""

import json
import random
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tests.agents import Wire
from tests.crash.counts import SECONDS, SEED
from tests.mates import member, messages
from tests.narrow import present

SENDERS, RECEIVERS, SERVERS = 16, 2, 2
LONGEST = 0.12  # seconds after which a process that is to be killed is killed

Ended = tuple[int, str, str]  # exit code, stdout and stderr


class Crowd:
    """What was sent, what was answered, and what was received."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ends = time.monotonic() + SECONDS
        self.answered = set[str]()
        self.begun = set[str]()
        self.received = Counter[str]()
        self.kills = Counter[str]()
        self.last_words = set[str]()  # what servers answered about when they were killed
        self.wrong: list[Ended] = []
        self._lock = threading.Lock()

    @property
    def going(self) -> bool:
        return time.monotonic() < self.ends and not self.wrong

    def command(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        person = member(self.folder, name)
        return subprocess.Popen(
            [sys.executable, "-m", "postroom", "agentmail", *words],
            cwd=self.folder,
            env=person.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def end(self, process: subprocess.Popen[bytes], chance: float, kind: str) -> Ended | None:
        """Let a process end, or kill it somewhere before; return what it said if it ended by itself."""
        with suppress(subprocess.TimeoutExpired):
            out, err = process.communicate(timeout=chance)
            return process.returncode, out.decode(), err.decode()
        process.kill()
        out, err = process.communicate()
        if process.returncode >= 0:  # it was quicker
            return process.returncode, out.decode(), err.decode()
        with self._lock:
            self.kills[kind] += 1
        return None

    def send(self, number: int) -> None:
        chance = random.Random(f"{SEED} sender {number}")
        count = 0
        while self.going:
            count += 1
            text = f"s{number:02}-{count}"
            with self._lock:
                self.begun.add(text)
            patience = chance.uniform(0.02, LONGEST) if chance.random() < 0.3 else 60
            done = self.end(self.command(f"s{number:02}", "send", "bob", text), patience, "send")
            if done and done[0]:
                self.wrong.append(done)
            elif done:
                with self._lock:
                    self.answered.add(text)

    def receive(self, number: int) -> None:
        chance = random.Random(f"{SEED} receiver {number}")
        while self.going:
            patience = chance.uniform(0.02, LONGEST) if chance.random() < 0.4 else 60
            done = self.end(self.command("bob", "receive"), patience, "receive")
            if done and done[0]:
                self.wrong.append(done)
            elif done:
                self.take(done[1])

    def take(self, said: str, *, is_last: bool = False) -> None:
        found = re.search(r"s\d\d-\d+", said)
        with self._lock:
            self.received.update([found[0]] if found else [])
            self.last_words.update([found[0]] if found and is_last else [])

    def serve(self, number: int) -> None:
        """Receive by a server, which is killed while it answers."""
        chance = random.Random(f"{SEED} server {number}")
        while self.going:
            wire = Wire(member(self.folder, "bob"), "agents").greet()
            try:
                for left in reversed(range(chance.randrange(3, 12))):
                    answer = wire.answer(wire.call("receive"))
                    # The kill below may come before the server has marked what it answered last.
                    self.take(answer["result"]["content"][0]["text"], is_last=not left)
                if chance.random() < 0.8:
                    wire.call("receive")
                    timer = threading.Timer(chance.uniform(0, 0.004), wire.process.kill)
                    timer.start()
                    with suppress(AssertionError, ValueError):
                        self.take(json.dumps(wire.line()), is_last=True)
                    timer.join()
                    self.kills["server"] += 1
            finally:
                wire.kill()

    def clean(self) -> None:
        chance = random.Random(f"{SEED} cleaning")
        while self.going:
            process = self.command("s00", "cleanup", "--delivered-hours", "0")
            patience = chance.uniform(0.02, LONGEST) if chance.random() < 0.5 else 60
            done = self.end(process, patience, "cleanup")
            if done and done[0]:
                self.wrong.append(done)


@pytest.mark.timeout(120 + 10 * SECONDS)
def test_every_message_is_delivered_once_whoever_is_killed(tmp_path: Path) -> None:
    crowd = Crowd(tmp_path)
    assert present(crowd.end(crowd.command("bob", "recipients"), 60, ""))[0] == 0
    threads = [
        *(threading.Thread(target=crowd.send, args=(number,)) for number in range(SENDERS)),
        *(threading.Thread(target=crowd.receive, args=(number,)) for number in range(RECEIVERS)),
        *(threading.Thread(target=crowd.serve, args=(number,)) for number in range(SERVERS)),
        threading.Thread(target=crowd.clean),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    while True:  # what is left
        code, out, err = present(crowd.end(crowd.command("bob", "receive"), 60, ""))
        assert code == 0, err
        if out == "No unread messages\n":
            break
        crowd.take(out)
    sys.stdout.write(
        f"\n{len(crowd.answered)} sent, {sum(crowd.received.values())} received;"
        f" killed: {dict(crowd.kills)}\n"
    )
    assert not crowd.wrong
    twice = {text for text, count in crowd.received.items() if count > 1}
    assert twice <= crowd.last_words
    assert len(twice) <= 1 + crowd.kills["server"] // 20
    assert max(crowd.received.values()) <= 2
    assert crowd.answered <= set(crowd.received) <= crowd.begun
    assert all(message.read for message in messages(tmp_path, "bob"))
    assert len(crowd.kills) == 4
    assert not list(Path(tmp_path, ".agentmail", "postroom").glob("*.rewrite"))
