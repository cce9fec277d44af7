"""The templates and static files of the page.

Everything that a template is given is escaped unless it is `Markup`, and a name that it is not given is an error.
"""

from __future__ import annotations

from hashlib import sha256
from importlib.resources import files
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from postroom.core import life
from postroom.core.text import duration, plural
from postroom.web import text, views

STATIC_TYPES: Final = {
    "desk.css": "text/css; charset=utf-8",
    "desk.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
STATIC: Final = {name: (files("postroom.web") / "static" / name).read_bytes() for name in STATIC_TYPES}  # fmt: skip
# The address changes with the content, so that browsers may keep a file for ever.
_STATIC_URLS: Final = {
    name: f"/static/{name}?{sha256(content).hexdigest()[:12]}" for name, content in STATIC.items()
}

ENVIRONMENT: Final = Environment(
    loader=PackageLoader("postroom.web"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
ENVIRONMENT.filters |= {
    "age": text.age,
    "agent_name": views.agent_name,
    "approval_date": views.approval_date,
    "decided_by": views.decided_by,
    "duration": duration,
    "isolate": text.isolate,
    "kind": life.name,
    "local_time": text.local_time,
    "mark_code": text.mark_code,
    "pages": views.pages,
    "plural": plural,
    "reveal": text.reveal,
    "sha256": lambda content: sha256(content).hexdigest(),
    "shorten": text.shorten,
    "time_left": text.time_left,
    "utc_time": text.utc_time,
}
ENVIRONMENT.globals |= {
    "chart_days": views.CHART_DAYS,
    "marks": ("calm", "look", "stop"),  # the classes of a risk card's levels
    "max_mail_text": views.MAX_MAIL_TEXT,
    "max_sources": views.MAX_SOURCES,
    "max_text_shown": views.MAX_TEXT_SHOWN,
    "open_states": life.OPEN,
    "outcomes": views.OUTCOMES,
    "static": _STATIC_URLS,
}


def render(template: str, **values: object) -> str:
    """Return a template of the page with these values in it, as HTML."""
    return ENVIRONMENT.get_template(template).render(values)
