"""Ask a model about a mail that no rule matches. The model has no tools: it decides and writes one text.

`ProviderModel` asks a service over HTTP through Pydantic AI; `CommandModel` runs a program of the person's.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import re
import secrets
import signal
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, Self, cast
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from postroom.core.errors import AuthRequired, Corrupt, Invalid, PostroomError, Unavailable
from postroom.core.handbook import DRAFTS, MAX_TEXT, MAX_WHY, Case, Decision, Judgement
from postroom.core.text import clean, draw_fence, one_line
from postroom.core.values import dataclass
from postroom.orchestrator.context import Model

if TYPE_CHECKING:
    import httpx2
    import pydantic_ai.models

MAX_OUTPUT: Final = 1_000_000  # bytes that a program may print
MAX_TOKENS: Final = 8_192  # of one answer: MAX_TEXT in any script, and some reasoning before it
RETRIES: Final = 2  # for an answer that does not fit the schema
POLL_SECONDS: Final = 0.05
TRY_BY_HAND: Final = "Run the program by hand, with a question on its input, to see what it prints."
_PASSING_ERRORS: Final = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
_CODE_FENCE: Final = re.compile(r"\s*```(?:json)?[ \t]*\n(.*?)\n?```\s*", re.DOTALL | re.IGNORECASE)
MAX_OWN_TEXT: Final = 8_000  # characters of each of the person's own texts, and of a former draft
MAX_BODY: Final = 20_000
MAX_FIELD: Final = 1_000
MAX_FILES: Final = 50
_QUESTION: Final[dict[str, str]] = tomllib.loads(
    files("postroom.orchestrator").joinpath("question.toml").read_text("utf-8")
)


class Prompt(NamedTuple):
    instructions: str  # ours and the person's: trusted
    mail: str  # the mail between its marks: data


def draw_mark(case: Case, draw: Callable[[], str] = lambda: secrets.token_hex(8)) -> str:
    """Return a random mark that no text of the case contains."""
    return draw_fence("".join((*case[:5], *case.files, *case[6:])), draw=draw)


def build_prompt(case: Case, mark: str) -> Prompt:
    """Return the question about a mail, with the mail between `<<<mark` and `mark>>>`."""
    own_texts = (
        f"{_QUESTION[field]}\n{_shorten(clean(text).text)}"
        for field in ("handbook", "style", "wish")
        if (text := getattr(case, field))
    )
    fields = {
        "From": case.sender,
        "To": case.to,
        "Subject": case.subject,
        "Date": case.date,
        "Files": ", ".join(one_line(name)[:MAX_FIELD] for name in case.files[:MAX_FILES]),
    }
    head = "\n".join(f"{name}: {one_line(text)[:MAX_FIELD]}" for name, text in fields.items())
    if case.draft:  # written by a model after reading this mail: trusted no more than the mail
        head = f"Former draft:\n{_shorten(clean(case.draft).text)}\n\nThe mail:\n{head}"
    body = clean(case.body).text
    cut = len(body) - MAX_BODY
    # Outside the marks: a mail could write the same sentence about itself.
    remark = f" Its last {cut} characters are left out." if cut > 0 else ""
    mail = _QUESTION["mail"].format(remark=remark, mark=mark, head=head, body=body[:MAX_BODY])
    instructions = _QUESTION["instructions"].format(max_why=MAX_WHY, max_text=MAX_TEXT)
    return Prompt("\n\n".join((instructions, *own_texts)), mail)


def _shorten(text: str) -> str:
    if len(text) <= MAX_OWN_TEXT:
        return text
    return f"{text[:MAX_OWN_TEXT]}\n(The rest is left out.)"


class ModelService(NamedTuple):
    address: str
    key_variable: str  # the environment variable that holds the key


# The addresses are given to the libraries explicitly: they would read others from the environment,
# and mail must go only where the settings say.
SERVICES: Final = {
    "anthropic": ModelService("https://api.anthropic.com", "ANTHROPIC_API_KEY"),
    "openai": ModelService("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "ollama": ModelService("http://127.0.0.1:11434/v1", "OLLAMA_API_KEY"),
}


class ModelAnswer(BaseModel):
    """What is to become of the mail."""

    model_config = ConfigDict(strict=True, extra="ignore", hide_input_in_errors=True)
    decision: Decision
    text: Annotated[
        str, Field(max_length=MAX_TEXT), AfterValidator(lambda text: clean(text).text.strip())
    ] = ""
    why: Annotated[str, AfterValidator(lambda why: one_line(why)[:MAX_WHY])] = ""

    @model_validator(mode="after")
    def _require_text(self) -> Self:
        if self.decision in (*DRAFTS, "delegate") and not self.text:
            raise ValueError(f"{self.decision} needs a text")
        return self

    def judgement(self) -> Judgement:
        return Judgement(self.decision, self.text, self.why)


class ClaudeCodeOutput(BaseModel):
    """What Claude Code prints with `--output-format json`, around the answer."""

    model_config = ConfigDict(strict=True, extra="ignore", hide_input_in_errors=True)
    result: str
    is_error: bool = False


_OUTPUT: Final[TypeAdapter[ModelAnswer | ClaudeCodeOutput]] = TypeAdapter(
    ModelAnswer | ClaudeCodeOutput
)


@dataclass(frozen=True, slots=True)
class MisconfiguredModel:
    """Stands in for a model whose settings are wrong: it raises that error for each mail."""

    error: PostroomError

    def judge(self, _case: Case) -> Judgement:
        raise self.error.with_traceback(None)


async def _wait_for(
    answer: Coroutine[Any, Any, Judgement], seconds: float, stopping: threading.Event
) -> Judgement:
    """Return the answer; raise `Unavailable` after so many seconds, or when Postroom stops."""
    task, end = asyncio.create_task(answer), time.monotonic() + seconds
    try:
        while not task.done():
            if stopping.is_set():
                raise Unavailable("The model was not waited for, because Postroom is stopping.")
            if time.monotonic() > end:
                raise Unavailable(f"The model gave no answer within {seconds:g} seconds.")
            await asyncio.wait({task}, timeout=POLL_SECONDS)
    finally:
        task.cancel()
    return task.result()


@dataclass(frozen=True, slots=True)
class CommandModel:
    """A program that reads the question on stdin and prints the answer as JSON."""

    argv: Sequence[str]
    timeout: float
    stopping: threading.Event

    def judge(self, case: Case) -> Judgement:
        return asyncio.run(_wait_for(self._ask(case), self.timeout, self.stopping))

    async def _ask(self, case: Case) -> Judgement:
        instructions, mail = build_prompt(case, draw_mark(case))
        try:
            output = await self._run(f"{instructions}\n\n{_QUESTION['json_form']}\n\n{mail}\n")
        except OSError as error:
            raise Unavailable("The machine has no room to run the model's program.") from error
        try:
            answer = _OUTPUT.validate_json(_strip_code_fence(output.decode()))
            if isinstance(answer, ClaudeCodeOutput):
                if answer.is_error:
                    raise Unavailable("The model's program reports that it failed.")
                answer = ModelAnswer.model_validate_json(_strip_code_fence(answer.result))
        except ValueError:  # of Pydantic and the decoder; not chained, since both quote the answer
            raise Corrupt(
                "The model's program printed no decision that can be used.", remedy=TRY_BY_HAND
            ) from None
        return answer.judgement()

    async def _run(self, question: str) -> bytes:
        # Files, not pipes: a program that never reads, or whose children keep its output open,
        # cannot block us.
        with (
            tempfile.TemporaryFile() as stdin,
            tempfile.TemporaryFile() as stdout,
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        ):
            stdin.write(question.encode("utf-8", "replace"))
            stdin.seek(0)
            program = self.argv[0]
            if "/" in program:  # the program runs in another folder than Postroom
                program = str(Path(program).absolute())
            try:
                process = await asyncio.create_subprocess_exec(
                    program,
                    *self.argv[1:],
                    stdin=stdin,
                    stdout=stdout,
                    stderr=asyncio.subprocess.DEVNULL,  # it may contain keys, and words of the mail
                    cwd=folder,
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                if isinstance(error, OSError) and error.errno in _PASSING_ERRORS:
                    raise
                raise Invalid(
                    f"The model's program {self.argv[0]!r} cannot be run: {type(error).__name__}.",
                    remedy="Make the first word of triage.command a program that you may run.",
                ) from None
            try:
                while process.returncode is None:
                    _check_size(stdout.fileno())
                    with suppress(TimeoutError):
                        await asyncio.wait_for(process.wait(), POLL_SECONDS)
            finally:
                with suppress(ProcessLookupError, PermissionError):  # all of them ended already
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
            if process.returncode:
                raise Unavailable(
                    f"The model's program ended with code {process.returncode}.", remedy=TRY_BY_HAND
                )
            _check_size(stdout.fileno())
            stdout.seek(0)
            return stdout.read(MAX_OUTPUT)


def _check_size(file: int) -> None:
    if os.fstat(file).st_size > MAX_OUTPUT:
        raise Corrupt(f"The model's program printed more than {MAX_OUTPUT} bytes.")


def _strip_code_fence(text: str) -> str:
    fenced = _CODE_FENCE.fullmatch(text)
    return fenced[1] if fenced else text


class ProviderModel:
    """A model of a service, as in `anthropic:claude-sonnet-4-6`, `openai:gpt-5` or `ollama:llama3.2`."""

    def __init__(
        self,
        name: str,
        *,
        endpoint: str = "",
        timeout: float,
        stopping: threading.Event,
        environ: Mapping[str, str] = os.environ,
        services: Mapping[str, ModelService] = SERVICES,
    ) -> None:
        self._provider, _, self._model = name.partition(":")
        if self._provider not in SERVICES or not self._model:
            raise Invalid(
                f"There is no model {name!r}.",
                remedy=f"Name it provider:model; the providers are {', '.join(SERVICES)}.",
            )
        if find_spec("pydantic_ai") is None:
            raise _missing_extra()
        service = services[self._provider]
        self._name = name
        self._timeout = timeout
        self._stopping = stopping
        self._endpoint = endpoint
        self._address, self._is_local = _check_address(endpoint or service.address)
        if self._provider == "ollama" and not urlsplit(self._address).path.strip("/"):
            self._address = f"{self._address.rstrip('/')}/v1"
        self._key_variable = service.key_variable
        self._key = self._read_key(environ)

    def judge(self, case: Case) -> Judgement:
        try:
            import pydantic_ai  # noqa: F401 - takes seconds, which the model's timeout excludes
        except ImportError:
            raise _missing_extra() from None
        return asyncio.run(_wait_for(self._ask(case), self._timeout, self._stopping))

    def _read_key(self, environ: Mapping[str, str]) -> str:
        key = environ.get(self._key_variable, "").strip()
        remedy = f"Set {self._key_variable} to the key in the environment of `postroom run`."
        if not key and (self._is_local or self._provider == "ollama"):
            return "none"  # the libraries want a key even where the server asks for none
        if not key:
            raise AuthRequired(
                f"The model {self._name} needs a key, and {self._key_variable} is not set.",
                remedy=remedy,
                kind="missing",
            )
        if not (key.isascii() and key.isprintable()):
            raise AuthRequired(f"{self._key_variable} does not contain a key.", remedy=remedy)
        return key

    async def _ask(self, case: Case) -> Judgement:
        import httpx2
        from pydantic_ai import Agent, ModelSettings, UsageLimits

        settings = ModelSettings(max_tokens=MAX_TOKENS, max_retries=0)
        if self._provider == "openai" and not self._endpoint:
            settings = cast("ModelSettings", {**settings, "openai_store": False})
        instructions, mail = build_prompt(case, draw_mark(case))
        limits = UsageLimits(
            request_limit=1 + RETRIES, output_tokens_limit=(1 + RETRIES) * MAX_TOKENS
        )
        # Follows no redirect. A proxy from the environment sees encrypted traffic only.
        async with httpx2.AsyncClient(
            timeout=self._timeout, trust_env=not self._is_local
        ) as client:
            agent = Agent(
                self._connect(client),
                output_type=ModelAnswer,
                instructions=instructions,
                retries=RETRIES,
            )
            agent.instrument = False
            try:
                run = await agent.run(mail, model_settings=settings, usage_limits=limits)
            except Exception as error:  # noqa: BLE001 - answers of a wrong shape raise anything
                # Not chained: its text may quote the key, the mail or the answer.
                raise self._translate(error) from None
        return run.output.judgement()

    def _connect(self, client: httpx2.AsyncClient) -> pydantic_ai.models.Model:
        from pydantic_ai.models import infer_model
        from pydantic_ai.providers import Provider, infer_provider_class

        def provider(name: str) -> Provider[Any]:
            options: Any = {"api_key": self._key, "base_url": self._address, "http_client": client}
            if name == "openai-chat":
                from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

                return OpenAICompatibleProvider("endpoint", **options)
            return infer_provider_class(name)(**options)

        is_compatible = self._provider == "openai" and self._endpoint
        return infer_model(f"openai-chat:{self._model}" if is_compatible else self._name, provider)

    def _translate(self, error: Exception) -> PostroomError:
        from pydantic_ai import exceptions

        status = error.status_code if isinstance(error, exceptions.ModelHTTPError) else 0
        new_key = f"Set {self._key_variable} to a key that may use this model."
        check = "Check the model's name, and the endpoint if one is set."
        table: tuple[tuple[type[Exception], type[PostroomError], str, str], ...] = (
            (exceptions.ModelAuthenticationError, AuthRequired, "refuses the key", new_key),
            (exceptions.ModelNotFoundError, Invalid, "is not known to the service", check),
            # Not Invalid: the service may refuse this one mail, and the others must go on.
            (exceptions.ModelRequestRejectedError, Corrupt, "refused this question", ""),
            (exceptions.ModelAPIError, Unavailable, "could not be asked", ""),
            (exceptions.UserError, Invalid, "cannot be used in this way", "Name another model."),
            (Exception, Corrupt, "gave no decision that can be used", ""),
        )
        kind, cause, remedy = next(row[1:] for row in table if isinstance(error, row[0]))
        suffix = f" (status {status})" if status else ""
        translated = kind(f"The model {self._name} {cause}{suffix}.", remedy=remedy)
        translated.status = status
        return translated


def _missing_extra() -> Invalid:
    return Invalid(
        "A model by name needs the extra `llm`, which is not installed.",
        remedy="Run pip install 'postroom[llm]'; in a clone, .venv/bin/pip install -e '.[llm]'.",
    )


def _check_address(endpoint: str) -> tuple[str, bool]:
    """Return the address and whether it is on this machine; refuse one that others could read along."""
    parts, host, is_local = urlsplit(""), "", False
    with suppress(ValueError):  # not an address, a port that is not a number, or a host with a name
        parts = urlsplit(endpoint)
        host, _ = parts.hostname or "", parts.port
        is_local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    # A user or a password would be a key in the settings.
    is_plain = host and not (parts.username or parts.password or parts.query or parts.fragment)
    if not is_plain or parts.scheme not in (("https", "http") if is_local else ("https",)):
        raise Invalid(
            "The model's endpoint is not an address that mail may be sent to.",
            remedy="Give an https address, or http on this machine, as in http://127.0.0.1:11434/v1.",
        )
    return endpoint, is_local


def open_model(
    name: str,
    command: Sequence[str],
    *,
    endpoint: str,
    timeout: float,
    stopping: threading.Event,
) -> Model | None:
    if name and command:
        raise Invalid("Both triage.model and triage.command are set.", remedy="Remove one of them.")
    if name:
        return ProviderModel(name, endpoint=endpoint, timeout=timeout, stopping=stopping)
    return CommandModel(command, timeout, stopping) if command else None
