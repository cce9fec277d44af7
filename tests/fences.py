"""What the fences of a note hold."""

from postroom.vault.markdown import parse


def fenced(section: str) -> str | None:
    """Return what the one fence holds; None where there is none, a second, or one left open."""
    fences = parse(section).fences
    is_one = len(fences) == 1 and fences[0].is_closed
    return fences[0].text.removesuffix("\n") if is_one else None
