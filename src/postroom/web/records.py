"""Looking back, and looking after it: the history, the agents, the health, and a chart of the last weeks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple
from urllib.parse import urlencode

from postroom.core import life
from postroom.core.health import Check
from postroom.core.records import DAY, AgentActivity, LetterSummary
from postroom.services.correspondence import Agent
from postroom.web.markup import NONE, Html, foreign, html, many, moment, prose
from postroom.web.pages import View, agent_name, cut, turns, whom

CLOSED: Final = ("sent", "rejected", "expired", "withdrawn", "failed", "rehearsal")
STATES: Final = (*CLOSED, *life.OPEN)
NAMES: Final = {"pending": "waiting", "rehearsal": "rehearsed"}  # as people say it
CHART_DAYS: Final = 30
_SERIES: Final = (("approved", "approved"), ("rejected", "rejected"), ("sent", "sent"))


class Asked(NamedTuple):
    """What a person looks for in the history."""

    query: str = ""
    state: str = ""
    agent: str = ""
    number: int = 1


def history(
    view: View, asked: Asked, lines: Sequence[LetterSummary], total: int, chart: Html
) -> Html:
    """Return what left, when, by whose word; and what did not."""
    options = [
        html('<option value="{value}"{chosen}>{name}</option>', value=value, name=name, chosen=Html(" selected") if asked.state == value else NONE)
        for value, name in (("", "every outcome"), *((state, NAMES.get(state, state)) for state in STATES))
    ]  # fmt: skip
    kept = urlencode({"q": asked.query, "state": asked.state, "agent": asked.agent})
    return html(
        """<section class="records"><h1>History</h1>
<form method="get" action="/history" class="search" role="search"><label class="sr" for="search">Search letters</label>
<input type="search" id="search" name="q" value="{query}" placeholder="Recipient, subject, words, agent or id">
<label class="sr" for="state">Outcome</label><select id="state" name="state">{options}</select>
{agent}<button>Search</button></form>
<div data-load="/history/chain" aria-live="polite"><p class="quiet"><a href="/history/chain">Compare the log with the ledger</a></p></div>
{rows}{pages}{chart}</section>""",
        query=asked.query,
        options=options,
        agent=html('<input type="hidden" name="agent" value="{agent}"><span class="quiet">of {agent}</span>', agent=asked.agent) if asked.agent else NONE,
        rows=_letters(view, lines, asked, total),
        pages=turns(asked.number, total, f"/history?{kept.replace('{', '{{').replace('}', '}}')}&page={{}}"),
        chart=chart,
    )  # fmt: skip


def _letters(view: View, lines: Sequence[LetterSummary], asked: Asked, total: int) -> Html:
    if not lines:
        searched = asked.query or asked.state or asked.agent
        said = "No letter fits. Search for fewer words, or for every outcome." if searched else "No letter was decided yet. What leaves, and what you turn down, is kept here."  # fmt: skip
        return html('<p class="empty">{said}</p>', said=said)
    rows = [
        html(
            '<tr><td>{when}</td><td><a href="/letter/{id}">{subject}</a></td><td>{whom}</td><td>{agent}</td><td class="outcome {state}">{outcome}</td><td>{by}</td></tr>',
            when=moment(_when(line), view.zone),
            id=line.id,
            subject=foreign(cut(line.subject, 120) or "(no subject)"),
            whom=whom(line.recipients),
            agent=foreign(agent_name(line.agent)),
            state=life.name(line.state),
            outcome=_outcome(line.state),
            by=foreign(word(line.state)),
        )
        for line in lines
    ]
    return html(
        '<p class="quiet">{total}</p><div class="wide" tabindex="0" role="region" aria-label="Table"><table class="letters"><thead><tr><th scope="col">When</th><th scope="col">Subject</th>'
        '<th scope="col">To</th><th scope="col">Agent</th><th scope="col">Outcome</th><th scope="col">By</th></tr></thead><tbody>{rows}</tbody></table></div>',
        total=many(total, "letter"),
        rows=rows,
    )


def _outcome(state: life.State) -> str:
    if isinstance(state, life.Rejected) and state.revise:
        return "sent back"
    return NAMES.get(life.name(state), life.name(state))


def _when(line: LetterSummary) -> float:
    at = getattr(line.state, "at", None)
    return float(at.wall if at else line.created.wall)


def word(state: life.State) -> str:
    """Return by whose word a letter came to where it is."""
    match state:
        case (
            life.Approved(verdict=verdict)
            | life.Sending(verdict=verdict)
            | life.Sent(verdict=verdict)
        ) if verdict:
            return "nobody: no approval is required" if verdict.by == "nobody" else verdict.by
        case life.Rejected(by=by):
            return by
        case life.Withdrawn():
            return "its agent"
    return ""


def chain(head: int, faults: Sequence[str]) -> Html:
    """Return whether the log is what was written."""
    if not faults:
        return html('<p class="chain ok">The audit chain is whole: {many} in the log, as written.</p>', many=many(head, "action"))  # fmt: skip
    rows = [html("<li>{fault}</li>", fault=fault) for fault in faults[:20]]
    return html(
        '<div class="chain fail"><p>The log is not what was written: {many}. <strong>See them with <code>postroom audit verify</code>.</strong></p><ul>{rows}</ul></div>',
        many=many(len(faults), "fault"),
        rows=rows,
    )


# Agents


def agents(
    view: View, tallies: Sequence[AgentActivity], present: Sequence[tuple[Agent, int]], why: str
) -> Html:
    """Return who is there, how each stands and how much they have not read, and their letters."""
    here = {agent.name: (agent.status or "here", unread) for agent, unread in present}
    known = {tally.agent: tally for tally in tallies}
    names = [*known, *(name for name in here if name not in known)]
    rows = []
    for name in names:
        states = known[name].states if name in known else {}
        status, unread = here.get(name, (NONE, NONE))
        waiting = sum(states.get(state, 0) for state in life.OPEN)
        link = f"/history?{urlencode({'agent': name})}"
        rows.append(
            html(
                '<tr><th scope="row">{name}</th><td>{status}</td><td class="number">{unread}</td><td class="number">{waiting}</td>'
                '<td class="number">{sent}</td><td class="number">{rejected}</td><td>{last}</td><td><a href="{link}">its letters</a></td></tr>',
                name=foreign(agent_name(name)),
                status=status,
                unread=unread,
                waiting=waiting,
                sent=states.get("sent", 0),
                rejected=states.get("rejected", 0),
                last=moment(known[name].last, view.zone) if name in known else NONE,
                link=link,
            )
        )
    table = html(
        '<div class="wide" tabindex="0" role="region" aria-label="Table"><table><thead><tr><th scope="col">Agent</th><th scope="col">Status</th><th scope="col" class="number">Unread</th><th scope="col" class="number">Waiting</th>'
        '<th scope="col" class="number">Sent</th><th scope="col" class="number">Rejected</th><th scope="col">Last letter</th><th scope="col"><span class="sr">Letters</span></th></tr></thead><tbody>{rows}</tbody></table></div>',
        rows=rows,
    )
    if not rows:
        table = html('<p class="empty">No agent has written a letter yet. <code>postroom install claude-code</code> connects one.</p>')  # fmt: skip
    note = (
        why
        or "Status and unread messages are those of agent mail, in the repository that the desk was started in."
    )
    return html('<section class="records"><h1>Agents</h1>{table}<p class="quiet">{note}</p></section>', table=table, note=note)  # fmt: skip


# Health


def health(checks: Sequence[Check]) -> Html:
    """Return the page on how each part is; what others must be asked for follows."""
    return html(
        '<section class="records"><h1>Health</h1>{table}<h2>Mail</h2><div data-load="/health/mail" aria-live="polite">'
        '<p class="quiet"><a href="/health/mail">Ask the mail providers</a></p></div></section>',
        table=table(checks),
    )


def table(checks: Sequence[Check]) -> Html:
    """Return checks as a list, each with its remedy."""
    words = {"ok": "OK", "note": "Note", "fail": "Amiss"}
    rows = [
        html(
            '<li class="{verdict}"><strong class="verdict">{word}</strong> <span class="part">{part}</span> <span class="found">{found}</span>{remedy}</li>',
            verdict=one.verdict,
            word=words[one.verdict],
            part=one.part,
            found=prose(one.found),
            remedy=html('<span class="remedy">{remedy}</span>', remedy=prose(one.remedy)) if one.remedy else NONE,
        )
        for one in checks
    ]  # fmt: skip
    return html('<ul class="checks">{rows}</ul>', rows=rows)


# The chart


def chart(days: Mapping[int, Mapping[str, int]], today: date) -> Html:
    """Return the last weeks as bars: what was approved and rejected, and what was sent."""
    first = today - timedelta(days=CHART_DAYS - 1)
    numbers = [(first - date(1970, 1, 1)).days + at for at in range(CHART_DAYS)]
    if not any(number in days for number in numbers):
        return NONE
    top = max(sum(days.get(n, {}).get(k, 0) for k in ("approved", "rejected")) for n in numbers)
    top = max(top, *(days.get(n, {}).get("sent", 0) for n in numbers), 1)
    height, bars = 60, list[Html]()
    for at, number in enumerate(numbers):
        found, x = days.get(number, {}), 4 + at * 12
        day = datetime.fromtimestamp(number * DAY, UTC)
        said = ", ".join(f"{found[key]} {name}" for key, name in _SERIES if found.get(key))
        if not said:
            continue
        drawn, y = list[Html](), float(height)
        for key in ("approved", "rejected"):
            tall = found.get(key, 0) / top * (height - 4)
            y -= tall
            if tall:
                drawn.append(html('<rect class="{key}" x="{x}" y="{y}" width="5" height="{tall}"/>', key=key, x=x, y=f"{y:.1f}", tall=f"{tall:.1f}"))  # fmt: skip
        tall = found.get("sent", 0) / top * (height - 4)
        if tall:
            drawn.append(html('<rect class="sent" x="{x}" y="{y}" width="4" height="{tall}"/>', x=x + 5, y=f"{height - tall:.1f}", tall=f"{tall:.1f}"))  # fmt: skip
        bars.append(html("<g><title>{day}: {said}</title>{drawn}</g>", day=f"{day:%Y-%m-%d}", said=said, drawn=drawn))  # fmt: skip
    sums = {key: sum(days.get(n, {}).get(key, 0) for n in numbers) for key, _ in _SERIES}
    legend = [html('<span class="{key}">{n} {name}</span>', key=key, n=f"{sums[key]:,}", name=name) for key, name in _SERIES]  # fmt: skip
    return html(
        '<figure class="chart"><svg viewBox="0 0 366 62" role="img" aria-label="Letters in the last {days} days: {said}">'
        '<line class="axis" x1="0" x2="366" y1="60.5" y2="60.5"/>{bars}</svg><figcaption>The last {days} days: {legend}</figcaption></figure>',
        days=CHART_DAYS,
        said=", ".join(f"{sums[key]} {name}" for key, name in _SERIES),
        bars=bars,
        legend=Html(" ".join(legend)),
    )
