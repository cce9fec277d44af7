"""`dataclass`, completed at its first use: the standard library compiles six methods for each class, a third of a start.

A type checker sees the standard decorator. At run time a class gets its methods when its first instance is made, or when
its fields are asked for: most commands use few of the classes that they import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    from dataclasses import dataclass as _standard_dataclass
    from functools import partial
    from threading import RLock

    _lock = RLock()

    class _Fields:
        """Stands for the fields of a class that is not complete yet."""

        def __init__(self, complete) -> None:  # noqa: ANN001
            self._complete = complete

        def __get__(self, instance: object, owner: type) -> dict[str, Any]:
            self._complete()
            return owner.__dataclass_fields__

    def dataclass(  # noqa: ANN201 - a type checker sees the standard one
        cls: type | None = None, /, *, slots: bool = False, **options: bool
    ):
        """Return the class as `dataclasses.dataclass` does, completed at its first use; it has no slots."""
        del slots
        if cls is None:
            return partial(dataclass, **options)

        def complete() -> None:
            with _lock:  # other threads wait in a stub until the class is complete
                if vars(cls).get("__init__") is not stubs["__init__"]:
                    return
                kept_out = (*stubs, "__dict__", "__weakref__")
                own = {name: value for name, value in vars(cls).items() if name not in kept_out}
                twin = _standard_dataclass(**options)(type(cls)(cls.__name__, cls.__bases__, own))
                made = {
                    name: value
                    for name, value in vars(twin).items()
                    if name not in kept_out[-2:] and not (name in own and own[name] is value)
                }
                for name in ("__setstate__", *(own.keys() - vars(twin).keys())):
                    delattr(cls, name)
                for name in sorted(made, key="__init__".__eq__):  # what ends the waiting comes last
                    setattr(cls, name, made[name])

        def init(self: object, *args: object, **kwargs: object) -> None:
            complete()
            self.__init__(*args, **kwargs)

        def setstate(self: object, state: dict[str, object]) -> None:
            complete()
            self.__dict__.update(state)

        stubs = {
            "__init__": init,
            "__setstate__": setstate,
            "__dataclass_fields__": _Fields(complete),
        }
        for name, stub in stubs.items():
            setattr(cls, name, stub)
        return cls


__all__ = ["dataclass"]
