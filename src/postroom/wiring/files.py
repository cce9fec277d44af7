"""Writing files whole, for surfaces, which do not import the store."""

from postroom.store.files import create, remove, replace

__all__ = ["create", "remove", "replace"]
