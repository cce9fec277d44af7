"""Arguments of a call, checked against what its contract's file enforces (`arguments` in `contracts/NAME.json`).

A check is a dict: `type` is string, integer, boolean, list, object or literal; `default` is there unless
the argument is required; `nullable` lets `null` pass. `min` and `max` bound a text's length, a number or a
list's length; `at_most` bounds a text too, in words of its own. `pattern` is a regular expression that the
whole text matches, `message` what is said if it does not. `items` is the check of each item of a list;
`values` are those that a literal can have.

Types are strict: `true` is no integer, and neither is 1.0. That texts are whole Unicode, no half of a character
among them, both servers have seen to when they read the message. The words are Pydantic's, whose models in
`tools/models` these checks are generated from; tests/properties compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from postroom.core.errors import Invalid
from postroom.core.text import one_line

MAX_PROBLEMS: Final = 3  # of a call's arguments that an error names

Check = Mapping[str, Any]
Checks = Mapping[str, Check]  # by the argument's name
Place = tuple[str | int, ...]  # an argument's name, and the number of its item


class Parsed:
    """The arguments of a call as attributes, defaults included; `model_fields_set` names those given."""

    def __init__(self, values: Mapping[str, Any], given: Mapping[str, Any]) -> None:
        self.__dict__.update(values, model_fields_set=frozenset(given))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...  # noqa: ANN401


def parse(tool: str, checks: Checks, given: Mapping[str, Any]) -> Parsed:
    """Return the arguments of a call; raise `Invalid`, which names the first problems, if there are any."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    for name, check in checks.items():
        if name in given:
            values[name] = given[name]
            problems += _problems((name,), given[name], check)
        elif "default" in check:
            values[name] = _fresh(check["default"])
        else:
            problems.append(f"{_words((name,))} is missing")
    problems += [f"{_words((n,))} is no argument of this tool" for n in given if n not in checks]
    if not problems:
        return Parsed(values, given)
    more = f" and {len(problems) - MAX_PROBLEMS} more" if len(problems) > MAX_PROBLEMS else ""
    raise Invalid(
        f"{tool}: {'; '.join(problems[:MAX_PROBLEMS])}{more}",
        remedy=f"It takes: {', '.join(checks)}. Nothing was done.",
    )


def _fresh(default: object) -> object:
    return default.copy() if isinstance(default, list | dict) else default


def _words(place: Place) -> str:
    return one_line(".".join(map(str, place)))[:60] or "arguments"


def _problems(place: Place, value: object, check: Check) -> Iterator[str]:
    """Yield what is wrong with a value, without repeating it."""
    if value is None and check.get("nullable"):
        return
    problem = _PROBLEM[check["type"]](value, check)
    if problem:
        yield f"{_words(place)}: {one_line(problem)[:160]}"
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _problems((*place, number), item, check["items"])


def _string(value: object, check: Check) -> str:
    if not isinstance(value, str):
        return "input should be a valid string"
    least, most, size = check.get("min", 0), check.get("max"), len(value)
    if size < least:
        return f"string should have at least {_count(least, 'character')}"
    if most is not None and size > most:
        return f"string should have at most {_count(most, 'character')}"
    if "pattern" in check and not re.fullmatch(check["pattern"], value):
        return str(check["message"])
    if "at_most" in check and size > check["at_most"]:
        return f"has more than {check['at_most']:,} characters"
    return ""


def _integer(value: object, check: Check) -> str:
    if not isinstance(value, int) or isinstance(value, bool):
        return "input should be a valid integer"
    least, most = check.get("min"), check.get("max")
    if most is not None and value > most:
        return f"input should be less than or equal to {most}"
    if least is not None and value < least:
        return f"input should be greater than or equal to {least}"
    return ""


def _list(value: object, check: Check) -> str:
    if not isinstance(value, list):
        return "input should be a valid list"
    most = check.get("max")
    if most is not None and len(value) > most:
        return f"list should have at most {_count(most, 'item')} after validation, not {len(value)}"
    return ""


def _literal(value: object, check: Check) -> str:
    if isinstance(value, str) and value in check["values"]:
        return ""
    *first, last = map(repr, check["values"])
    return f"input should be {', '.join(first)} or {last}" if first else f"input should be {last}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


_PROBLEM: Final = {
    "string": _string,
    "integer": _integer,
    "boolean": lambda value, _: (
        "" if isinstance(value, bool) else "input should be a valid boolean"
    ),
    "list": _list,
    "object": lambda value, _: (
        "" if isinstance(value, dict) else "input should be a valid dictionary"
    ),
    "literal": _literal,
}
