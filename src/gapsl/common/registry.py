"""A dictionary of named things that refuses duplicates and suggests the nearest name."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar, cast

from gapsl.common.errors import InputError
from gapsl.common.plugins import announced, load_named

T = TypeVar("T")

MANY = 30  # names that are too many to read where one of them is likely


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a sentence for an error message: the nearest known name, then all, unless they are many."""
    names = sorted(known)
    close = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    if close and len(names) > MANY:
        return f"did you mean {close[0]!r}?"
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}known: {', '.join(names)}"


class Registry(Mapping[str, T], Generic[T]):
    """Names and what they stand for, for one kind of thing (a method, a model, a dataset).

    With a `group`, what plugins bring is added when a name is not known, or all are asked for. With a `base`,
    entries are subclasses of it.
    """

    def __init__(self, kind: str, *, group: str | None = None, base: type | None = None) -> None:
        self.kind, self._group, self._base = kind, group, base
        self._one = f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
        self._hint = "" if group is None else f"; {self._one} of a plugin needs --plugin FILE_OR_MODULE"
        self._entries: dict[str, T] = {}
        self._aliases: dict[str, str] = {}

    def register(self, name: str, entry: T, *, aliases: Iterable[str] = ()) -> T:
        """Add an entry under a name nobody has taken yet."""
        for key in (name, *aliases):
            if key in self._entries or key in self._aliases:
                raise InputError(f"{self._one} named {key!r} is registered already; choose another name")
        self._entries[name] = entry = self.accept(entry)
        self._aliases.update(dict.fromkeys(aliases, name))
        return entry

    def canonical(self, name: str) -> str:
        """Return the name an entry is registered under, or refuse with the nearest known one."""
        if name not in self:
            raise InputError(f"unknown {self.kind} {name!r}; {nearest(name, self._entries)}{self._hint}")
        return self._aliases.get(name, name)

    def __getitem__(self, name: str) -> T:
        return self._entries[self.canonical(name)]

    def __contains__(self, name: object) -> bool:
        if name not in self._entries and name not in self._aliases:
            self._discover()
        return name in self._entries or name in self._aliases

    def __iter__(self) -> Iterator[str]:
        self._discover()
        return iter(self._entries)

    def __len__(self) -> int:
        self._discover()
        return len(self._entries)

    def _discover(self) -> None:
        """Add what plugins bring, once."""
        if self._group is None:
            return
        group, self._group = self._group, None
        load_named()
        for name, entry in announced(group):
            try:
                self.register(name, entry)
            except (InputError, TypeError) as error:
                warnings.warn(f"the {self.kind} {name!r} of a plugin is left out: {error}", stacklevel=2)

    def accept(self, entry: Any) -> T:
        """Return what was given as an entry; refuse with a TypeError what cannot be one."""
        if self._base is not None and not (isinstance(entry, type) and issubclass(entry, self._base)):
            raise TypeError(f"{entry!r} is not {self._one}: give a subclass of gapsl.{self._base.__name__}")
        return cast(T, entry)
