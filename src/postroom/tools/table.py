"""A tool as a row of a table: name, title, arguments, result, what it may do, and the function."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from types import SimpleNamespace
from typing import (
    Any,
    ClassVar,
    Final,
    NamedTuple,
    NoReturn,
    Protocol,
    Self,
    TypeVar,
    dataclass_transform,
)

from postroom.core.errors import Conflict, Limited, PostroomError
from postroom.core.mail_view import FileView
from postroom.core.text import one_line
from postroom.desk.desk import Desk
from postroom.desk.recorder import Call
from postroom.services.services import Services
from postroom.tools import arguments

S = TypeVar("S")
T = TypeVar("T")
MAX_ERROR: Final = 1_000  # characters of an error
MAIL: Final = "email_mcp"  # the actor of the tools for mail


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Result(SimpleNamespace):
    """The values of an answer: fields as in a frozen dataclass, but without generated code, which takes a server 13 ms.

    A field that clients see under another name is declared as `class FoundMail(Result, sender="from")`.
    """

    _fields: ClassVar[tuple[str, ...]] = ()
    _field_defaults: ClassVar[Mapping[str, object]] = {}
    _aliases: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, **aliases: str) -> None:
        own = cls.__annotations__
        cls._fields = (*cls._fields, *own)
        given = {name: cls.__dict__[name] for name in own if name in cls.__dict__}
        cls._field_defaults = {**cls._field_defaults, **given}
        cls._aliases = {**cls._aliases, **aliases}

    def __init__(self, **values: Any) -> None:  # noqa: ANN401 - each field has its type
        whole = {**self._field_defaults, **values}
        if wrong := ", ".join(sorted(whole.keys() ^ set(self._fields))):
            raise TypeError(f"{type(self).__name__}: missing or unknown: {wrong}")
        super().__init__(**{name: whole[name] for name in self._fields})

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be changed")

    def _replace(self, **values: Any) -> Self:  # noqa: ANN401
        return type(self)(**{**vars(self), **values})


class Fenced(Result):
    """What others wrote is between `fence` and `end`, which hold the same mark."""

    fence: str = ""


def dump(result: Result) -> dict[str, Any]:
    """Return a result as JSON, under the names that clients see, without fields that have their default."""
    defaults, aliases = result._field_defaults, result._aliases  # noqa: SLF001
    return {
        aliases.get(name, name): _dumped(value)
        for name, value in vars(result).items()
        if name not in defaults or value != defaults[name]
    }


def _dumped(value: object) -> object:
    if isinstance(value, Result):
        return dump(value)
    if isinstance(value, FileView):
        return value._asdict()
    return list(map(_dumped, value)) if isinstance(value, tuple) else value


class ToolContext(NamedTuple):
    """What a tool works with: the services, who calls by which tool, and the account that was named."""

    services: Services
    call: Call
    account: str = ""

    @property
    def desk(self) -> Desk:
        return self.services.desk


class AnswerDelivery(Protocol):
    """What counts once an answer was written out; as a context manager it is released if the block raises."""

    def __enter__(self) -> object: ...

    def __exit__(self, *details: Any) -> None: ...  # noqa: ANN401 - as Python has them

    def deliver(self, handle: int, data: bytes) -> None:
        """Write the answer to a descriptor, and confirm; raise `Unavailable` if nothing of it was written."""

    def confirm(self) -> None:
        """Record that the answer was written out."""

    def take_back(self) -> None:
        """Undo that: the call was cancelled after all."""

    def release(self) -> None:
        """Give up what was not confirmed."""


class Reply(NamedTuple):
    """An answer: the same as text and as values; `refused` is one that reports a failure."""

    text: str
    result: Result
    refused: bool = False
    delivery: AnswerDelivery | None = None
    notice: str = ""  # what the values begin with, of which some clients show nothing else

    @property
    def content(self) -> dict[str, Any]:
        notice = {"notice": self.notice} if self.notice else {}
        return {
            "content": [{"type": "text", "text": self.text}],
            "structuredContent": notice | dump(self.result),
            "isError": self.refused,
        }


class Wait(NamedTuple):
    """How long to wait, and how far a call is; `total` is known of work of ours, not of time or a person."""

    seconds: float
    done: float
    total: float | None = None
    message: str = "Waiting."


# What a tool returns: an answer, or values that its row puts into words.
Answer = Reply | Result
# A tool that waits yields how many seconds or, for work of ours, how far that is. It is resumed afterwards.
Pause = float | Wait
Waiting = Generator[Pause, None, Answer]
Function = Callable[..., Answer | Waiting]


def in_json(result: Result, separators: tuple[str, str] | None = None) -> Reply:
    """Return values as JSON, without those that have their default."""
    text = json.dumps(dump(result), ensure_ascii=False, separators=separators)
    return Reply(text, result)


def waiting_for(
    running: Generator[S, None, T], pause: Callable[[S], Pause]
) -> Generator[Pause, None, T]:
    """Yield what `pause` makes of each thing that is yielded; return what is returned."""
    with closing(running):
        while True:
            try:
                step = next(running)
            except StopIteration as done:
                result: T = done.value
                return result
            yield pause(step)


# What a tool may do, as MCP's annotations, without the protocol's defaults: it may write, and again does more.
Hints = Mapping[str, bool]
READS: Final[Hints] = {"readOnlyHint": True, "openWorldHint": False}
CHANGES: Final[Hints] = {"destructiveHint": False, "openWorldHint": False}
SETS: Final[Hints] = {"destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
REPLACES: Final[Hints] = {"destructiveHint": True, "idempotentHint": True, "openWorldHint": False}
REMOVES: Final[Hints] = {"destructiveHint": True, "openWorldHint": False}
SENDS: Final[Hints] = {"destructiveHint": False, "openWorldHint": True}
ASKS: Final[Hints] = {"destructiveHint": False, "idempotentHint": True, "openWorldHint": True}


class Tool(NamedTuple):
    """One row: the function's name is the tool's, its docstring the description, its keyword parameters the arguments."""

    function: Function
    title: str
    result: type[Result]
    hints: Hints
    actor: str = MAIL  # as the log names it
    shape: Callable[..., Reply] = in_json  # puts values into words
    dashed: bool = False  # whether its name has dashes for underscores
    invalid: str = ""  # what an error about its arguments begins with

    @property
    def name(self) -> str:
        name = self.function.__name__
        return name.replace("_", "-") if self.dashed else name

    def parse(self, given: Mapping[str, Any], checks: arguments.Checks) -> dict[str, Any]:
        """Return the arguments with their defaults, checked as the served listing says; raise `Invalid`."""
        return arguments.parse(f"{self.invalid}{self.name}", checks, given)

    def reply(self, answer: Answer) -> Reply:
        return answer if isinstance(answer, Reply) else self.shape(answer)


class Resource(NamedTuple):
    """Something that is read by its address, `scheme://ID`; `action` is what the log calls that."""

    scheme: str
    title: str
    text: str
    action: str
    function: Callable[[ToolContext, str], str]


class Problem(NamedTuple):
    """An error as answers tell it: on one line, bounded, and without the name of the tool."""

    code: str
    message: str
    remedy: str

    @classmethod
    def of(cls, error: PostroomError, tool: str = "") -> Self:

        message = error.message.removeprefix(f"{tool}: ") if tool else error.message
        return cls(error.code, one_line(message)[:MAX_ERROR], one_line(error.remedy)[:MAX_ERROR])

    @property
    def advice(self) -> str:
        return f"{self.message.rstrip('.')}. {self.remedy}" if self.remedy else self.message


class Failure(Result):
    """What went wrong: code, message and, if there is one, the remedy."""

    error: dict[str, Any]


def error_details(error: PostroomError) -> dict[str, object]:
    """Return what an error has for programs: the etag that a note has now, the seconds to wait."""
    if isinstance(error, Conflict) and error.etag:
        return {"etag": error.etag}
    if isinstance(error, Limited):
        return {"retry_after_seconds": round(error.seconds, 1)}
    return {}


def refusal(_tool: str, error: PostroomError) -> Reply:
    problem = Problem.of(error)
    values = problem._asdict() | error_details(error)
    text = f"Error ({error.code}): {problem.message.rstrip('.')}. {problem.remedy}".rstrip()
    return Reply(text, Failure(error=values), refused=True)


class Contract(NamedTuple):
    """What one server shows. What it lists is in `contracts/NAME.json`, made from this and `contracts/NAME.toml`."""

    name: str  # of its module, and of its files
    tools: tuple[Tool, ...]
    resources: tuple[Resource, ...] = ()
    server: Mapping[str, str] = {"name": "postroom", "title": "Postroom"}  # what it says of itself
    accounts: bool = True  # whether a tool has `account` where there are several
    whole: bool = False  # whether schemas list defaults that are false or null
    refuse: Callable[[str, PostroomError], Reply] = refusal
    # Called with each call that was answered, its answer, its error, and whether the desk is live.
    on_call_finished: Callable[[Call, Reply, PostroomError | None, bool], None] | None = None
