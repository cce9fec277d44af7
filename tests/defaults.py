"""How a page shows the default of a setting."""

from __future__ import annotations

from pathlib import Path

from postroom.config.settings import Setting


def default_text(row: Setting) -> str:
    """Return the default as text; empty where `no_value` describes it."""
    if row.no_value:
        return ""
    if isinstance(row.default, bool):
        return str(row.default).lower()
    return f"./{row.default}" if isinstance(row.default, Path) else str(row.default)
