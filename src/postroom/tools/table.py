"""A tool as a row of a table: name, title, arguments, result, what it may do, and the function."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, create_model

from postroom import __version__
from postroom.core.errors import Conflict, Invalid, Limited, PostroomError
from postroom.core.text import line
from postroom.desk.desk import Desk
from postroom.desk.outbox import Call

if TYPE_CHECKING:
    from postroom.agents.mailbox import Taken

S = TypeVar("S")
T = TypeVar("T")
MAX_PROBLEMS: Final = 3  # of a call's arguments that are told
MAX_ERROR: Final = 1_000  # characters of an error


class Arguments(BaseModel):
    """What a tool is called with: of these types and nothing else."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


def at_most(size: int) -> AfterValidator:
    """Return a bound on a text that its schema does not tell."""

    def check(text: str) -> str:
        if len(text) > size:
            raise ValueError(f"has more than {size:,} characters")
        return text

    return AfterValidator(check)


class Result(BaseModel):
    """What a tool answers, beside its text."""

    model_config = ConfigDict(frozen=True)


class Visit(NamedTuple):
    """One call at the desk: by whom, by which tool, for which account."""

    desk: Desk
    call: Call
    account: str = ""


class Reply(NamedTuple):
    """An answer: the same as text and as values; `refused` is one that says no."""

    text: str
    result: BaseModel
    refused: bool = False
    handover: Taken | None = None  # is its reader's only once the answer was written out


class Wait(float):
    """Seconds to wait, and how far the work is meanwhile."""

    done: int
    total: int
    told: str

    @classmethod
    def of(cls, seconds: float, done: int, total: int, told: str) -> Wait:
        """Return a wait that says how far it is."""
        made = cls(seconds)
        made.done, made.total, made.told = done, total, told
        return made


# What a tool returns: an answer, or values that its row puts into words.
Answer = Reply | Result
# A tool that waits yields how many seconds, and is called on afterwards; nobody else waits with it.
Waiting = Generator[float, None, Answer]
Function = Callable[[Visit, Any], Answer | Waiting]


def in_json(result: Result) -> Reply:
    """Return values as JSON, without those that say nothing."""
    values = result.model_dump(by_alias=True, exclude_defaults=True)
    return Reply(json.dumps(values, ensure_ascii=False), result)


def waiting_for(
    running: Generator[S, None, T], seconds: Callable[[S], float]
) -> Generator[float, None, T]:
    """Wait as long as `seconds` makes of each thing that is yielded; return what is returned."""
    with closing(running):
        while True:
            try:
                step = next(running)
            except StopIteration as done:
                found: T = done.value
                return found
            yield seconds(step)


class Hints(NamedTuple):
    """What a tool may do, as MCP's annotations say it."""

    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False


READS: Final = Hints(read_only=True, idempotent=True)


@dataclass(frozen=True)
class Tool:
    """One row: the function's name is the tool's, and its docstring what agents are told."""

    function: Function
    title: str
    arguments: type[Arguments]
    result: type[Result]
    hints: Hints
    whole: bool = False  # whether its schema says what a document says, though it says nothing
    actor: str = "email_mcp"  # as the log names it
    shape: Callable[[Result], Reply] = in_json  # puts values into words

    @property
    def name(self) -> str:
        """What it is called."""
        return self.function.__name__

    @property
    def text(self) -> str:
        """What agents are told of it."""
        return " ".join((self.function.__doc__ or "").split())

    def parse(self, given: Mapping[str, Any]) -> Arguments:
        """Return the arguments as values, or say what is wrong with them."""
        try:
            return self.arguments.model_validate(dict(given))
        except ValidationError as wrong:
            problems = [_problem(dict(error)) for error in wrong.errors(include_url=False)]
        more = f" and {len(problems) - MAX_PROBLEMS} more" if len(problems) > MAX_PROBLEMS else ""
        known = ", ".join(self.arguments.model_fields)
        raise Invalid(
            f"{self.name}: {'; '.join(problems[:MAX_PROBLEMS])}{more}",
            remedy=f"It takes: {known}. Nothing was done.",
        )

    def reply(self, answer: Answer) -> Reply:
        """Return what the function returned, in words."""
        return answer if isinstance(answer, Reply) else self.shape(answer)

    def of_accounts(self, names: tuple[str, ...], default: str) -> Tool:
        """Return the tool with a choice of accounts, where there are several."""
        if len(names) < 2:
            return self
        chosen: Any = Literal[names]
        model = create_model(
            self.arguments.__name__, __base__=self.arguments, account=(chosen, default)
        )
        return replace(self, arguments=model)

    @cached_property
    def schemas(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The JSON Schemas of the arguments and of the result."""
        # An error has none of the result's, and some clients hold it to the schema too.
        return _schema(self.arguments, defaults=self.whole), _optional(_schema(self.result))


class Resource(NamedTuple):
    """A thing that can be read by its address, `scheme://ID`; `action` is what the log calls that."""

    scheme: str
    title: str
    text: str
    action: str
    function: Callable[[Visit, str], str]


class Wrong(Result):
    """What went wrong: the code, the message, what to do next."""

    error: dict[str, Any]


def refusal(_tool: str, error: PostroomError) -> Reply:
    """Return an error as a tool's answer: what went wrong, and what to do next."""
    said, remedy = line(error.message)[:MAX_ERROR], line(error.remedy)[:MAX_ERROR]
    about: dict[str, Any] = {"code": error.code, "message": said, "remedy": remedy}
    if isinstance(error, Conflict) and error.etag:
        about["etag"] = error.etag
    if isinstance(error, Limited):
        about["retry_after_seconds"] = round(error.seconds, 1)
    text = f"Error ({error.code}): {said.rstrip('.')}." + (f" {remedy}" if remedy else "")
    return Reply(text, Wrong(error=about), refused=True)


class Heard(NamedTuple):
    """A call that was answered."""

    tool: str
    live: bool
    refused: bool
    error: PostroomError | None
    seconds: float


class About(NamedTuple):
    """What a server says of itself."""

    name: str = "postroom"
    version: str = __version__
    title: str = "Postroom"
    description: str | None = None


class Contract(NamedTuple):
    """What one server shows."""

    instructions: str
    tools: tuple[Tool, ...]
    resources: tuple[Resource, ...] = ()
    about: About = About()
    accounts: bool = True  # whether a tool has `account` where there are several
    refuse: Callable[[str, PostroomError], Reply] = refusal
    heard: Callable[[Heard], None] | None = None  # told of each call when it is answered


def _schema(model: type[BaseModel], *, defaults: bool = False) -> dict[str, Any]:
    """Return a model's schema without what says nothing: titles that repeat the name, references used once.

    Of the defaults, those that are empty or false are told only on request.
    """
    made = model.model_json_schema()
    short = _short(made, made.pop("$defs", {}), defaults)
    assert isinstance(short, dict)
    short.pop("description", None)
    return short


_SAYS_NOTHING: Final = frozenset({"title", "maxItems"})
_MANY: Final = 1_000  # a bound this high is enforced, and not worth telling


def _short(value: object, definitions: Mapping[str, Any], defaults: bool) -> object:  # noqa: FBT001
    if isinstance(value, list):
        return [_short(item, definitions, defaults) for item in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        found = dict(definitions[value["$ref"].rpartition("/")[2]])
        found.pop("description", None)
        return _short(found, definitions, defaults)
    kept: dict[str, object] = {}
    for key, inner in value.items():
        if key == "properties":
            kept[key] = {n: _short(about, definitions, defaults) for n, about in inner.items()}
        elif key == "default" and not inner:
            kept |= {key: inner} if defaults else {}
        elif key not in _SAYS_NOTHING and inner != _MANY:
            kept[key] = _short(inner, definitions, defaults)
    return kept


def _optional(schema: Any) -> Any:  # noqa: ANN401 - a schema is JSON
    """Return a schema that asks for nothing."""
    if isinstance(schema, list):
        return [_optional(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    lists = isinstance(schema.get("required"), list)
    return {
        key: _optional(inner) for key, inner in schema.items() if not (key == "required" and lists)
    }


def _problem(error: dict[str, Any]) -> str:
    """Return what is wrong with one argument, without repeating what was given."""
    place = line(".".join(map(str, error["loc"])))[:60] or "arguments"
    match error["type"]:
        case "missing":
            return f"{place} is missing"
        case "extra_forbidden":
            return f"{place} is no argument of this tool"
    said = line(str(error["msg"])).removeprefix("Value error, ")[:160]
    return f"{place}: {said[:1].lower()}{said[1:]}"
