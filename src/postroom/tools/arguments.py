"""Arguments of a call, checked against what its contract's file enforces (`arguments` in `contracts/NAME.json`).

A check is a dict: `type` is string, integer, boolean, list, object or literal; `default` is there unless the argument
is required; `nullable` lets `null` pass. `min` and `max` bound a text's length, a number or a list's length; `at_most`
bounds a text too, with a message of its own. `pattern` is a regular expression that the whole text matches, `message`
the error if it does not. `items` is the check of each item of a list; `values` are those that a literal can have.
With `one_item`, a text stands for a list that holds it alone, an empty one for none. `aliases` are other names of the
argument, which are not listed: a call gives one of all its names.

Types are strict: `true` is not an integer, and neither is 1.0. The words are Pydantic's, from whose models of the tools
(`models.model_of`) these checks are generated; tests/properties compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import copy
from itertools import chain
from typing import Any, Final

from postroom.core.errors import Invalid
from postroom.core.text import one_line

MAX_PROBLEMS: Final = 3  # of a call's arguments that an error names

Check = Mapping[str, Any]
Checks = Mapping[str, Check]  # by the argument's name
Place = tuple[str | int, ...]  # an argument's name, and the number of its item


def parse(tool: str, checks: Checks, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call with their defaults; raise `Invalid`, which names the first problems, if there are any."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    for name, check in checks.items():
        names = [each for each in (name, *check.get("aliases", ())) if each in given]
        if len(names) > 1:
            problems.append(f"{' and '.join(names)} are one argument: give {name} alone")
        elif names:
            values[name] = as_list(given[names[0]]) if check.get("one_item") else given[names[0]]
            problems += _problems((names[0],), values[name], check)
        elif "default" in check:
            values[name] = copy(check["default"])
        else:
            problems.append(f"{_words((name,))} is missing")
    known = {*checks, *chain.from_iterable(check.get("aliases", ()) for check in checks.values())}
    problems += [f"{_words((n,))} is not an argument of this tool" for n in given if n not in known]
    if not problems:
        return values
    more = f" and {len(problems) - MAX_PROBLEMS} more" if len(problems) > MAX_PROBLEMS else ""
    raise Invalid(
        f"{tool}: {'; '.join(problems[:MAX_PROBLEMS])}{more}",
        remedy=f"It takes: {', '.join(checks)}. Nothing was done.",
    )


def as_list(value: object) -> object:
    """Return a text as the list that it stands for, and anything else as it is."""
    if isinstance(value, str):
        return [value] if value else []
    return value


def _words(place: Place) -> str:
    return one_line(".".join(map(str, place)))[:60] or "arguments"


def _problems(place: Place, value: object, check: Check) -> Iterator[str]:
    """Yield what is wrong with a value, without repeating it."""
    if value is None and check.get("nullable"):
        return
    problem = _problem(value, check)
    if problem:
        yield f"{_words(place)}: {one_line(problem)[:160]}"
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _problems((*place, number), item, check["items"])


def _problem(value: Any, check: Check) -> str:  # noqa: ANN401 - JSON
    if check["type"] == "literal":
        *first, last = map(repr, check["values"])
        expected = f"{', '.join(first)} or {last}" if first else last
        return "" if value in check["values"] else f"input should be {expected}"
    kind, name = _TYPES[check["type"]]
    given: type = type(value)
    if given is not kind:
        return f"input should be a valid {name}"
    size = value if kind in (int, bool) else len(value)
    least, most = check.get("min", size), check.get("max", size)
    if size < least:
        return _TOO_SMALL[kind].format(bound=least, s="" if least == 1 else "s")
    if size > most:
        return _TOO_LARGE[kind].format(bound=most, s="" if most == 1 else "s", size=size)
    if "pattern" in check and not re.fullmatch(check["pattern"], value):
        return str(check["message"])
    if size > check.get("at_most", size):
        return f"has more than {check['at_most']:,} characters"
    return ""


# The type of a check → the type of the value, and its name
_TYPES: Final[Mapping[str, tuple[type, str]]] = {
    "string": (str, "string"),
    "integer": (int, "integer"),
    "boolean": (bool, "boolean"),
    "list": (list, "list"),
    "object": (dict, "dictionary"),
}
_TOO_SMALL: Final[Mapping[type, str]] = {
    str: "string should have at least {bound} character{s}",
    int: "input should be greater than or equal to {bound}",
}
_TOO_LARGE: Final[Mapping[type, str]] = {
    str: "string should have at most {bound} character{s}",
    int: "input should be less than or equal to {bound}",
    list: "list should have at most {bound} item{s} after validation, not {size}",
}
