"""The types of the tools' arguments, and the Pydantic models that the documents name.

No server imports this module: contracts name its types in annotations alone. `make listings` writes what the
annotations say into `contracts/NAME.json`, from which servers list their tools and check each call.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Callable
from functools import partial
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args, get_origin, get_type_hints

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    create_model,
)
from pydantic.fields import FieldInfo

from postroom.core.letter import MAX_SUBJECT
from postroom.core.outgoing_html import MAX_HTML
from postroom.tools.arguments import as_list
from postroom.tools.contracts import agents, approval, dry_run, gmail, vault
from postroom.tools.documents import MAX_ID

MAX_BODY: Final = 1_000_000
LISTED_AS_REQUIRED: Final = Field(json_schema_extra={"required": True})


class Arguments(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


def at_most(size: int) -> AfterValidator:
    """Return a bound on a text that is enforced, and not listed."""
    return AfterValidator(partial(check_size, size))


def named(*names: str) -> FieldInfo:
    """Return the names of an argument: its own, which is listed, and others that models take from other servers."""
    field: FieldInfo = Field(validation_alias=AliasChoices(*names))
    return field


def check_size(size: int, text: str) -> str:
    if len(text) > size:
        raise ValueError(f"has more than {size:,} characters")
    return text


def check_pattern(pattern: str, message: str, text: str) -> str:
    if not re.fullmatch(pattern, text):
        raise ValueError(message)
    return text


Body = Annotated[str, at_most(MAX_BODY)]
Subject = Annotated[str, at_most(MAX_SUBJECT)]
Query = Annotated[str, at_most(2_000)]
ShortText = Annotated[str, at_most(1_000)]

# `postroom`
Id = Annotated[str, Field(min_length=1, max_length=200)]
Key = Annotated[str, Field(max_length=200)]
PageSize = Annotated[int, Field(ge=1, le=50), named("limit", "max_results")]
MailId = Annotated[Id, named("id", "message_id")]
AnsweredMail = Annotated[Key, named("id", "message_id")]
AnsweredThread = Annotated[Key, named("thread", "thread_id")]
ThreadId = Annotated[Id, named("id", "thread_id", "message_id")]
Repeat = Annotated[Key, "a new key makes a new letter of the same words"]
Former = Annotated[Key, "your letter that this one replaces"]
ListedText = Annotated[str, Field(max_length=1_000)]
ListedSubject = Annotated[str, Field(max_length=MAX_SUBJECT)]
OneItem = BeforeValidator(as_list)  # enforced and not listed: clients write what is listed
AddressList = Annotated[str, at_most(10_000)]  # one address, or several between commas
People = Annotated[list[AddressList], Field(max_length=100), OneItem]
Files = Annotated[
    list[ListedText], Field(max_length=20), OneItem, "Outgoing/FILE in the vault, or mail:ID/PART"
]
Page = Annotated[
    str,
    at_most(MAX_HTML),
    named("html", "html_body"),
    "instead of body: p br div b i u s a[href] ul ol li table …; no style, image or comment",
]

# `approval`
GmailId = Annotated[
    str, AfterValidator(partial(check_pattern, "[!-~]+", "is not an id")), at_most(MAX_ID)
]

# `dry-run`: what is longer than a listed bound is cut
Email = Annotated[str, Field(json_schema_extra={"format": "email"})]
CutSubject = Annotated[
    str,
    StringConstraints(min_length=1),
    Field(json_schema_extra={"maxLength": dry_run.MAX_SUBJECT}),
]
CutBody = Annotated[
    str, StringConstraints(min_length=1), Field(json_schema_extra={"maxLength": dry_run.MAX_BODY})
]
GivenQuery = Annotated[str, Field(min_length=1), at_most(2_000)]

# `gmail`
MessageId = Annotated[str, Field(min_length=1), at_most(MAX_ID)]

# `vault`
Etag = Annotated[str, at_most(100), "etag of what you read"]
Folder = Annotated[ShortText, LISTED_AS_REQUIRED]
if TYPE_CHECKING:
    Replacement = str | None
    Frontmatter = dict[str, Any] | None
else:  # None where it is not given; null is refused
    Replacement = Body
    Frontmatter = Annotated[dict[str, Any], LISTED_AS_REQUIRED]

# `all` and `agents`; a schema asks for what is needed, and the program misses it in its own words
AgentName = Annotated[str, at_most(256)]
AgentMailId = Annotated[str, at_most(64)]
Needed = Annotated[str, LISTED_AS_REQUIRED]

NAMES: Final = vars(typing) | globals()  # that annotations use without importing them


def model_of(function: Callable[..., object], name: str = "") -> type[Arguments]:
    """Return the model of a tool's arguments: its function's keyword parameters, with a text as the description."""
    hints = get_type_hints(function, {**NAMES, **function.__globals__}, include_extras=True)
    fields: dict[str, Any] = {}
    for parameter in signature(function).parameters.values():
        if parameter.kind is not Parameter.KEYWORD_ONLY:
            continue
        hint = hints[parameter.name]
        metadata = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        text = next((each for each in metadata if isinstance(each, str)), None)
        default = ... if parameter.default is Parameter.empty else parameter.default
        fields[parameter.name] = (hint, Field(default, description=text))
    return create_model(name or function.__name__, __base__=Arguments, **fields)


# By the names of the documents.
SearchEmailRequest = model_of(approval.search_email, "SearchEmailRequest")
DraftEmailRequest = model_of(approval.draft_email, "DraftEmailRequest")
SendEmailRequest = model_of(approval.send_email, "SendEmailRequest")
ReplyEmailRequest = model_of(approval.reply_email, "ReplyEmailRequest")

SendEmailInput = model_of(gmail.send_email, "SendEmailInput")
ListEmailsInput = model_of(gmail.list_emails, "ListEmailsInput")
GetEmailInput = model_of(gmail.get_email, "GetEmailInput")
MoveEmailInput = model_of(gmail.move_email, "MoveEmailInput")
AddLabelInput = model_of(gmail.add_label, "AddLabelInput")

ReadNoteInput = model_of(vault.read_note, "ReadNoteInput")
WriteNoteInput = model_of(vault.write_note, "WriteNoteInput")
ListNotesInput = model_of(vault.list_notes, "ListNotesInput")
MoveNoteInput = model_of(vault.move_note, "MoveNoteInput")
SearchNotesInput = model_of(vault.search_notes, "SearchNotesInput")

SendParams = model_of(agents.send, "SendParams")
ReceiveParams = model_of(agents.receive, "ReceiveParams")
StatusParams = model_of(agents.status, "StatusParams")
