"""Many questions at once, to a server that may fail, from code that waits."""

import sys
from pathlib import Path

from postroom.core.errors import Corrupt, NotFound, Unavailable
from postroom.orchestrator.context import Question, Servers, ToolValues

SERVER = Path(__file__).with_name("servers.py")


def servers(folder: Path, mode: str) -> Servers:
    (folder / "vault").mkdir()
    command = [sys.executable, "-I", "-S", str(SERVER), str(folder), mode, "1000000"]
    return Servers({"vault": command}, folder / "vault", timeout=30)


def values(answer: ToolValues) -> ToolValues:
    if not answer:
        raise Corrupt("there was no answer")
    return answer


def missing() -> dict[str, object]:
    raise NotFound("no such note")


def test_answers_come_in_the_order_of_the_questions(tmp_path: Path) -> None:
    with servers(tmp_path, "well") as asked:
        assert asked.ask("vault", "look", []) == []
        questions = [Question({"n": n}, values, dict) for n in range(20)]
        answers = asked.ask("vault", "look", questions)
    assert answers == [{"tool": "look", "n": n} for n in range(20)]


def test_a_server_that_failed_is_not_asked_again_for_a_while(tmp_path: Path) -> None:
    with servers(tmp_path, "exits") as asked:
        for _ in range(2):
            here = Question({}, values, lambda: {"read": "here"})
            first, second = asked.ask("vault", "look", [here, Question({}, values, missing)])
            assert first == {"read": "here"}
            assert isinstance(second, NotFound)
    assert len((tmp_path / "starts").read_text().split()) <= 2


def test_an_answer_that_nobody_waits_for_any_more_ends_in_order(tmp_path: Path) -> None:
    with servers(tmp_path, "hangs") as asked:
        asked.keep_waiting = lambda: False
        answers = asked.ask("vault", "look", [Question({}, values, dict)] * 3)
    assert [type(answer) for answer in answers] == [Unavailable] * 3
