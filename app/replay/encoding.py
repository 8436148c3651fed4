"""Frozen dataclasses to JSON and back, by their own type hints: no list of fields to keep up."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable
from dataclasses import MISSING
from functools import cache, partial
from itertools import chain, repeat
from typing import Any, Literal, TypeAlias

import numpy as np

Json: TypeAlias = Any  # what json.loads gives
Object: TypeAlias = dict[str, Json]

LARGEST_INT = 2**63 - 1
MAX_INTS = 1 << 20  # in one tuple: the longest context there is
_LARGEST_IN_RUN = 2**61  # a step, and the value after the last, are then in range as well
_RUN = 3  # that many in step are written as a run
_SHORT = 8  # ints that are written as they are


class DamagedError(ValueError):
    """A value that is not what its type hint says."""


# --- writing ----------------------------------------------------------------------------------


def encode(item: Any) -> Object:
    """The fields of a dataclass instance, those that have their default left out."""
    found = {}
    kind: type = type(item)
    for name, default, write in _writers(kind):
        value = getattr(item, name)
        if value is not default and (default is MISSING or value != default):
            found[name] = write(value) if write else value
    return found


@cache
def _writers(kind: type) -> tuple[tuple[str, Any, Callable[[Any], Json] | None], ...]:
    hints = typing.get_type_hints(kind)
    return tuple((f.name, f.default, _writer(hints[f.name])) for f in dataclasses.fields(kind))


def _writer(hint: Any) -> Callable[[Any], Json] | None:
    """How a value of this type is written, None where JSON has it already."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return encode
    if origin in (types.UnionType, typing.Union):
        (inner,) = (arg for arg in args if arg is not types.NoneType)
        write = _writer(inner)
        return partial(_write_optional, write) if write else None
    if hint == tuple[int, ...]:
        return _write_ints
    if origin is tuple and args[-1] is ...:
        write = _writer(args[0])
        return partial(_write_each, write) if write else list
    return None


def _write_optional(write: Callable[[Any], Json], value: Any) -> Json:
    return None if value is None else write(value)


def _write_each(write: Callable[[Any], Json], values: tuple[Any, ...]) -> Json:
    return [write(each) for each in values]


def _write_ints(values: tuple[int, ...]) -> list[Json]:
    """Ints in steps of equal size as runs: [first, count] or [first, count, step]."""
    if len(values) <= _SHORT or max(map(abs, values)) > _LARGEST_IN_RUN:
        return list(values)
    steps = np.diff(np.array(values, np.int64))
    ends = [*(np.flatnonzero(steps[1:] != steps[:-1]) + 1).tolist(), len(steps)]
    written: list[Json] = []
    start = 0
    for end in ends:
        count = end + 1 - start
        if count >= _RUN:
            step = values[start + 1] - values[start]
            written.append([values[start], count, step] if step else [values[start], count])
            start = end + 1
        elif start < end:
            written += values[start:end]
            start = end
    return written + list(values[start:])


# --- reading ----------------------------------------------------------------------------------


def decode(kind: type, found: Json, left_out: tuple[str, ...] = ()) -> Any:
    """An instance of a dataclass. Fields it does not know are ignored, missing ones have defaults.

    Those of `left_out` may be missing: they become an empty text, an empty tuple or -1.
    Raises DamagedError, naming the field.
    """
    if not isinstance(found, dict):
        raise DamagedError(f"{kind.__name__} is not an object")
    values = {}
    for name, required, read, blank in _readers(kind):
        if name in found:
            try:
                values[name] = read(found[name])
            except DamagedError as error:
                raise DamagedError(f"{name}: {error}") from None
        elif required and name not in left_out:
            raise DamagedError(f"{name} is missing")
        elif required:
            values[name] = blank
    try:
        return kind(**values)
    except ValueError as error:
        raise DamagedError(str(error)) from None


@cache
def _readers(kind: type) -> tuple[tuple[str, bool, Callable[[Json], Any], Any], ...]:
    hints = typing.get_type_hints(kind)
    blanks = {str: "", int: -1}
    return tuple(
        (
            field.name,
            field.default is MISSING and field.default_factory is MISSING,
            _reader(hints[field.name]),
            blanks.get(hints[field.name], ()),
        )
        for field in dataclasses.fields(kind)
    )


def _reader(hint: Any) -> Callable[[Json], Any]:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if dataclasses.is_dataclass(hint):
        return lambda found: decode(typing.cast(type, hint), found)
    if origin is Literal:
        return lambda found: _one_of(args, found)
    if origin in (types.UnionType, typing.Union):
        (inner,) = (arg for arg in args if arg is not types.NoneType)
        read = _reader(inner)
        return lambda found: None if found is None else read(found)
    if origin is tuple and args == (int, ...):
        return _read_ints
    if origin is tuple:
        return _tuple_reader(args)
    if origin is dict and args[0] is str:
        read = _reader(args[1])
        return lambda found: {key: read(value) for key, value in _object(found).items()}
    raise TypeError(f"no JSON for {hint}")


def _tuple_reader(args: tuple[Any, ...]) -> Callable[[Json], tuple[Any, ...]]:
    if args[-1] is ...:
        read = _reader(args[0])
        return lambda found: tuple(read(each) for each in _list(found))
    readers = [_reader(arg) for arg in args]

    def read_each(found: Json) -> tuple[Any, ...]:
        if len(_list(found)) != len(readers):
            raise DamagedError("not as many values as there should be")
        return tuple(read(each) for read, each in zip(readers, found, strict=True))

    return read_each


def _int(found: Json) -> int:
    if type(found) is not int or abs(found) > LARGEST_INT:
        raise DamagedError("not a whole number")
    return found


def _float(found: Json) -> float:
    if type(found) is int:
        found = float(_int(found))
    if type(found) is not float or not math.isfinite(found):
        raise DamagedError("not a number")
    return found


def _str(found: Json) -> str:
    if type(found) is not str:
        raise DamagedError("not a text")
    return found


def _bool(found: Json) -> bool:
    if type(found) is not bool:
        raise DamagedError("neither true nor false")
    return found


_PLAIN: dict[Any, Callable[[Json], Any]] = {int: _int, float: _float, str: _str, bool: _bool}


def _one_of(choices: tuple[Any, ...], found: Json) -> Any:
    if type(found) is not str or found not in choices:
        raise DamagedError(f"not one of {', '.join(map(str, choices))}")
    return found


def _list(found: Json) -> list[Json]:
    if type(found) is not list:
        raise DamagedError("not a list")
    return found


def _object(found: Json) -> Object:
    if type(found) is not dict:
        raise DamagedError("not an object")
    return found


def _read_ints(found: Json) -> tuple[int, ...]:
    parts = [_run(each) if type(each) is list else (_int(each),) for each in _list(found)]
    if sum(map(len, parts)) > MAX_INTS:
        raise DamagedError("too many numbers")
    return tuple(chain.from_iterable(map(_expanded, parts)))


def _run(found: list[Json]) -> range | _Repeated:
    if len(found) not in (2, 3):
        raise DamagedError("not a run of numbers")
    first, count, step = map(_int, (*found, 0)[:3])
    if not 0 < count <= MAX_INTS or abs(first + count * step) > LARGEST_INT:
        raise DamagedError("not a run of numbers")
    return range(first, first + count * step, step) if step else _Repeated(first, count)


@dataclasses.dataclass(frozen=True, slots=True)
class _Repeated:
    value: int
    count: int

    def __len__(self) -> int:
        return self.count


def _expanded(part: tuple[int, ...] | range | _Repeated) -> typing.Iterable[int]:
    return repeat(part.value, part.count) if isinstance(part, _Repeated) else part
