# SPDX-License-Identifier: Apache-2.0
"""Checks of what a caller gives: ctypes cuts numbers and texts without a word, and Python names no nearest keyword."""
from __future__ import annotations

import ctypes as c
import difflib
import functools
import inspect
import operator
import os
from typing import Any, Callable, Iterable, Optional, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])


class OutOfRange(ValueError, OverflowError):
    """A number that C would cut."""


def near(name: str, known: Iterable[str]) -> str:
    """"; did you mean `files`?", or "" if nothing is near."""
    found = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean `{found[0]}`?" if found else ""


def named(function: _F) -> _F:
    """Refuses keyword arguments that the function does not have, with the nearest one that it has."""
    shown = "open" if function.__name__ == "__init__" else function.__name__
    known = [p.name for p in inspect.signature(function).parameters.values()
             if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name != "self"]

    @functools.wraps(function)
    def checked(*arguments: Any, **words: Any) -> Any:
        for word in words:
            if word not in known:
                said = near(word, known) or "; it has: " + ", ".join(known)
                raise TypeError(f"{shown}() has no argument `{word}`{said}")
        return function(*arguments, **words)

    return checked  # type: ignore[return-value]


def whole(name: str, value: Any, bits: int, signed: bool = True) -> int:
    """A whole number that `bits` can hold."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} = {value!r} is no whole number") from None
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    if not low <= number <= high:
        raise OutOfRange(f"{name} = {number}: {low} to {high} is possible")
    return number


def number(name: str, value: Any) -> float:
    """A number that need not be whole."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} = {value!r} is no number") from None


def text(name: str, value: Any) -> bytes:
    """A text for C, which would end at a NUL."""
    if not isinstance(value, str):
        raise TypeError(f"{name} = {value!r} is {type(value).__name__}, no text")
    if "\0" in value:
        raise ValueError(f"{name} has a NUL at character {value.index(chr(0))}: texts have none")
    return value.encode(errors="surrogateescape")


def texts(name: str, values: Any) -> Any:
    """A list of texts for C."""
    if isinstance(values, (str, bytes)):
        raise TypeError(f"{name} is a list of names: [{values!r}]")
    return (c.c_char_p * len(values))(*[text(name, one) for one in values])


def path(name: str, value: Any) -> Optional[bytes]:
    """A path for C; None stays None."""
    if value is None:
        return None
    out = os.fsencode(os.fspath(value))
    if b"\0" in out:
        raise ValueError(f"{name} has a NUL: no path has one")
    return out
