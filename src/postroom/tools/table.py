"""A tool as a row of a table: name, title, arguments, result, what it may do, and the function."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    NamedTuple,
    NoReturn,
    Self,
    TypeVar,
    dataclass_transform,
)

from postroom import __version__
from postroom.core.errors import Conflict, Limited, PostroomError
from postroom.core.text import one_line
from postroom.core.values import dataclass
from postroom.tools import arguments, listing

if TYPE_CHECKING:
    from postroom.agents.mailbox import Delivery
    from postroom.desk.desk import Desk
    from postroom.desk.recorder import Call
    from postroom.services.services import Services

S = TypeVar("S")
T = TypeVar("T")
MAX_ERROR: Final = 1_000  # characters of an error
MAIL: Final = "email_mcp"  # the actor of the tools for mail
_REQUIRED: Final = object()


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Result:
    """The values of an answer: fields as in a frozen dataclass, given by keyword.

    It is not a dataclass because those generate code: 40 of them add 13 ms to a server's first call, 40 of these
    less than 1 ms. A field that clients see under another name is declared as
    `class FoundMail(Result, sender="from")`.
    """

    _fields: ClassVar[tuple[str, ...]] = ()
    _field_defaults: ClassVar[Mapping[str, object]] = {}
    _aliases: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, **aliases: str) -> None:
        own = cls.__annotations__
        cls._fields = tuple(dict.fromkeys((*cls._fields, *own)))
        given = {name: cls.__dict__[name] for name in own if name in cls.__dict__}
        cls._field_defaults = {**cls._field_defaults, **given}
        cls._aliases = {**cls._aliases, **aliases}
        if unknown := aliases.keys() - set(cls._fields):
            raise TypeError(f"{cls.__name__} has no field {', '.join(unknown)}")

    def __init__(self, **values: Any) -> None:  # noqa: ANN401 - each field has its type
        whole = {**self._field_defaults, **values}
        if len(whole) != len(self._fields) or not whole.keys() <= set(self._fields):
            wrong = sorted(whole.keys() ^ set(self._fields))
            raise TypeError(f"{type(self).__name__}: missing or unknown: {', '.join(wrong)}")
        self.__dict__.update(whole)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be changed")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._fields)
        return f"{type(self).__name__}({shown})"

    def _replace(self, **values: Any) -> Self:  # noqa: ANN401
        """Return a copy with other values for these fields."""
        return type(self)(**{**vars(self), **values})


def dump(result: Result) -> dict[str, Any]:
    """Return a result as JSON, under the names that clients see, without fields that have their default."""
    defaults, aliases = result._field_defaults, result._aliases  # noqa: SLF001
    return {
        aliases.get(name, name): _dumped(value)
        for name in result._fields
        if (value := getattr(result, name)) != defaults.get(name, _REQUIRED)
    }


def _dumped(value: object) -> object:
    if isinstance(value, Result):
        return dump(value)
    return list(map(_dumped, value)) if isinstance(value, tuple) else value


class ToolContext(NamedTuple):
    """What a tool works with: the services, who calls by which tool, and the account that was named."""

    services: Services
    call: Call
    account: str = ""

    @property
    def desk(self) -> Desk:
        """The desk that the services belong to."""
        return self.services.desk


class Reply(NamedTuple):
    """An answer: the same as text and as values; `refused` is one that reports a failure."""

    text: str
    result: Result
    refused: bool = False
    delivery: Delivery | None = None  # counts as read once the answer was written out

    @property
    def values(self) -> dict[str, Any]:
        """The result as JSON."""
        return dump(self.result)

    @property
    def content(self) -> dict[str, Any]:
        """The answer as MCP's result of `tools/call`."""
        return {
            "content": [{"type": "text", "text": self.text}],
            "structuredContent": self.values,
            "isError": self.refused,
        }


class Wait(NamedTuple):
    """How long to wait for work of ours, and how far that work is."""

    seconds: float
    done: int
    total: int
    message: str


# What a tool returns: an answer, or values that its row puts into words.
Answer = Reply | Result
# A tool that waits yields how many seconds, and is resumed afterwards; it holds no thread meanwhile.
Pause = float | Wait
Waiting = Generator[Pause, None, Answer]
Function = Callable[[ToolContext, Any], Answer | Waiting]


def in_json(result: Result) -> Reply:
    """Return values as JSON, without those that have their default."""
    return Reply(json.dumps(dump(result), ensure_ascii=False), result)


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


class Hints(NamedTuple):
    """What a tool may do, as MCP's annotations say it."""

    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False


READS: Final = Hints(read_only=True, idempotent=True)


@dataclass(frozen=True)
class Tool:
    """One row: the function's name is the tool's, and its docstring what agents are told.

    The model of its arguments is the one that annotates the function's second parameter.
    """

    function: Function
    title: str
    result: type[Result]
    hints: Hints
    contract: str  # whose listing has its arguments
    whole: bool = False  # whether its schema lists empty defaults, as its document does
    actor: str = MAIL  # as the log names it
    shape: Callable[[Result], Reply] = in_json  # puts values into words
    dashed: bool = False  # whether its name has dashes for underscores
    invalid: str = ""  # what an error about its arguments begins with

    @property
    def name(self) -> str:
        """What clients call it."""
        name = self.function.__name__
        return name.replace("_", "-") if self.dashed else name

    @property
    def checks(self) -> arguments.Checks:
        """What its contract enforces of its arguments, by their names."""
        checks: arguments.Checks = listing.load(self.contract)["arguments"][self.name]
        return checks

    def parse(
        self, given: Mapping[str, Any], checks: arguments.Checks | None = None
    ) -> arguments.Parsed:
        """Return the arguments as values; raise `Invalid`, which says what is wrong with them.

        `checks` are those of the listing that is served, if it has a choice of accounts.
        """
        checks = self.checks if checks is None else checks
        return arguments.parse(f"{self.invalid}{self.name}", checks, given)

    def reply(self, answer: Answer) -> Reply:
        """Return what the function returned, in words."""
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
        """Return what an error says."""
        message = error.message.removeprefix(f"{tool}: ") if tool else error.message
        return cls(error.code, one_line(message)[:MAX_ERROR], one_line(error.remedy)[:MAX_ERROR])

    @property
    def advice(self) -> str:
        """What is wrong, and what to do next."""
        return f"{self.message.rstrip('.')}. {self.remedy}" if self.remedy else self.message


class Failure(Result):
    """What went wrong: code, message and, if there is one, the remedy."""

    error: dict[str, Any]


def refusal(_tool: str, error: PostroomError) -> Reply:
    """Return an error as a tool's answer: what went wrong, and what to do next."""
    problem = Problem.of(error)
    values: dict[str, Any] = problem._asdict()
    if isinstance(error, Conflict) and error.etag:
        values["etag"] = error.etag
    if isinstance(error, Limited):
        values["retry_after_seconds"] = round(error.seconds, 1)
    text = f"Error ({error.code}): {problem.message.rstrip('.')}. {problem.remedy}".rstrip()
    return Reply(text, Failure(error=values), refused=True)


class CallFinished(NamedTuple):
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
    """What one server shows. Its listing is in the file that `listing.load(name)` reads."""

    name: str  # of its module, and of the file that lists it
    instructions: str
    tools: tuple[Tool, ...]
    resources: tuple[Resource, ...] = ()
    about: About = About()
    accounts: bool = True  # whether a tool has `account` where there are several
    refuse: Callable[[str, PostroomError], Reply] = refusal
    on_call_finished: Callable[[CallFinished], None] | None = None
