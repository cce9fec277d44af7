"""`dataclass`, completed at its first use: the standard library compiles six methods for each class, a third of a start.

A type checker sees the standard decorator. At run time all classes share the methods that compare, hash, print and
freeze; a class gets its `__init__` when its first instance is made, or when its fields are asked for: most commands use
few of the classes that they import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    from dataclasses import FrozenInstanceError, fields
    from dataclasses import dataclass as _standard_dataclass
    from functools import partial
    from operator import attrgetter
    from threading import RLock

    _lock = RLock()

    def _equals(self: object, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return self._compared(self) == self._compared(other)

    def _hash(self: object) -> int:
        return hash(self._compared(self))

    def _represent(self: object) -> str:
        shown = [f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr]
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def _set_once(self: object, name: str, value: object) -> None:
        if name in self.__dict__ or name not in self.__dataclass_fields__:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        self.__dict__[name] = value

    def _keep(self: object, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete {name!r} of {type(self).__qualname__}")

    def _set_state(self: object, state: dict[str, object]) -> None:
        fields(self)  # completes the class
        self.__dict__.update(state)

    class _Fields:
        """Stands for the fields of a class that is not complete yet."""

        def __init__(self, complete) -> None:  # noqa: ANN001
            self._complete = complete

        def __get__(self, instance: object, owner: type) -> dict[str, Any]:
            self._complete()
            return owner.__dataclass_fields__

    def dataclass(  # noqa: ANN201 - a type checker sees the standard one
        cls: type | None = None, /, *, slots: bool = False, frozen: bool = False, **options: bool
    ):
        """Return the class as `dataclasses.dataclass` does, completed at its first use; it has no slots."""
        if cls is None:
            return partial(dataclass, slots=slots, frozen=frozen, **options)
        own = {n: v for n, v in vars(cls).items() if n not in ("__dict__", "__weakref__")}

        def complete() -> None:
            with _lock:  # other threads wait in a stub until the class is complete
                if vars(cls).get("__init__") is not init:
                    return
                # Without a text of its own a class would get one, which takes as long as all else.
                body = {**own, "__doc__": cls.__doc__ or cls.__name__}
                twin = type(cls)(cls.__name__, cls.__bases__, body)
                is_ordered = options.get("order", False)
                twin = _standard_dataclass(repr=False, eq=is_ordered, **options)(twin)
                for name in own.keys() - vars(twin).keys():
                    delattr(cls, name)
                compared = [one.name for one in fields(twin) if one.compare] or ["__class__"]
                cls._compared = attrgetter(*compared)
                made = {n: v for n, v in vars(twin).items() if n not in body or body[n] is not v}
                names = made.keys() - {"__dict__", "__weakref__", "__hash__"}
                for name in sorted(names, key="__init__".__eq__):
                    setattr(cls, name, made[name])  # what ends the waiting comes last

        def init(self: object, *args: object, **kwargs: object) -> None:
            complete()
            self.__init__(*args, **kwargs)

        methods = {
            "__init__": init,
            "__dataclass_fields__": _Fields(complete),
            "__eq__": _equals,
            "__repr__": _represent,
            "__setstate__": _set_state,
            "__hash__": _hash if frozen else None,
            **({"__setattr__": _set_once, "__delattr__": _keep} if frozen else {}),
        }
        for name in methods.keys() - own.keys():
            setattr(cls, name, methods[name])
        return cls


__all__ = ["dataclass"]
