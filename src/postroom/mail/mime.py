"""MIME: one builder for what leaves, one reader for whatever arrives."""

from postroom.mail.build import build
from postroom.mail.read import attachment, read

__all__ = ["attachment", "build", "read"]
