"""Values to JSON and back, by their types.

What is decoded has the type that it says: an integer is never a float or a bool, bytes are base64, a required
member is there. What a newer supervisor has added is ignored, unless strict. What is encoded fits the contract:
integers are 64 bits, text is UTF-8, None is left out.
"""

from __future__ import annotations

import base64
import binascii
import json
import sys
from dataclasses import dataclass, fields, is_dataclass, MISSING
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Type, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")


class Record:
    """A type of the contract. It shows what is there, and not what is absent."""

    def __repr__(self) -> str:
        there = ((f.name, getattr(self, f.name)) for f in fields(cast(Any, self)))
        return f"{type(self).__name__}({', '.join(f'{name}={v!r}' for name, v in there if v is not None)})"


@dataclass(frozen=True, repr=False)
class Secret:
    """A value of the environment that reaches the process and no record."""

    secret: str

    def __repr__(self) -> str:
        return "Secret(…)"


@dataclass(frozen=True)
class SecretDigest:
    """What a record has in the place of a secret."""

    secret_digest: str


@dataclass(frozen=True)
class Empty:
    """An object without members."""


#: A value of the environment: a text, a secret, in a record its digest, and in an env_patch None, which unsets it.
EnvValue = Union[str, Secret, SecretDigest, None]

#: uint64 is what inode numbers need; everything else is int64.
_MOST = (-(1 << 63), (1 << 64) - 1)


class DecodeError(ValueError):
    """A document is not of the type that it should be of. The message names the place."""


def encode(value: Any) -> bytes:
    """A value as the bytes of a document."""
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")


def plain(value: Any) -> Any:
    """A value as json knows it."""
    if value is None or isinstance(value, (str, bool, float)):
        return value
    if isinstance(value, int):
        if not _MOST[0] <= value <= _MOST[1]:
            raise ValueError(f"{value} does not fit 64 bits")
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Mapping):
        return {str(name): plain(v) for name, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if is_dataclass(value) and not isinstance(value, type):
        members = ((f.metadata.get("name", f.name), getattr(value, f.name), f.default) for f in fields(value))
        return {name: plain(v) for name, v, default in members if v is not None or default is MISSING}
    raise TypeError(f"a {type(value).__name__} is no value of the contract")


def decode(kind: Type[T], document: Union[bytes, str], strict: bool = False) -> T:
    """A document as a value. strict refuses members that the type does not have."""
    try:
        value = json.loads(document, object_pairs_hook=_once)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as e:
        raise DecodeError(f"not a document: {e}") from None
    return typed(kind, value, strict)


def typed(kind: Type[T], value: Any, strict: bool = False) -> T:
    """What json knows as a value of a type."""
    result: T = _reader(kind)(value, "", strict)
    return result


def _once(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise DecodeError("a member occurs twice")
    return members


_Reader = Callable[[Any, str, bool], Any]
_readers: Dict[Any, _Reader] = {}


def _reader(kind: Any) -> _Reader:
    found = _readers.get(kind)
    if found is None:
        _readers[kind] = lambda value, at, strict: _readers[kind](value, at, strict)  # a type that has itself within
        found = _readers[kind] = _make(kind)
    return found


def _make(kind: Any) -> _Reader:
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value, at, strict: value
    if kind == EnvValue:
        return _environment
    if kind is bytes:
        return _bytes
    if kind in (str, int, bool):
        return _scalar(kind)
    if origin is Union:  # Optional: a member that is there is never null
        return _reader(next(a for a in args if a is not type(None)))
    if origin is tuple:
        return _sequence(_reader(args[0]))
    if origin is not None:
        return _mapping(_reader(args[1]))
    return _members(kind)


def _scalar(kind: type) -> _Reader:
    def read(value: Any, at: str, strict: bool) -> Any:
        if type(value) is not kind:
            raise DecodeError(f"{at or '/'}: {_name(value)} in the place of {kind.__name__}")
        return value

    return read


def _bytes(value: Any, at: str, strict: bool) -> bytes:
    try:
        if isinstance(value, str):
            return base64.b64decode(value.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        pass
    raise DecodeError(f"{at or '/'}: {_name(value)} in the place of base64")


def _sequence(element: _Reader) -> _Reader:
    def read(value: Any, at: str, strict: bool) -> Any:
        if not isinstance(value, list):
            raise DecodeError(f"{at or '/'}: {_name(value)} in the place of an array")
        return tuple(element(v, f"{at}/{i}", strict) for i, v in enumerate(value))

    return read


def _mapping(element: _Reader) -> _Reader:
    def read(value: Any, at: str, strict: bool) -> Any:
        if not isinstance(value, dict):
            raise DecodeError(f"{at or '/'}: {_name(value)} in the place of an object")
        return {name: element(v, f"{at}/{name}", strict) for name, v in value.items()}

    return read


def _environment(value: Any, at: str, strict: bool) -> EnvValue:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, dict) and list(value) == ["secret_digest"]:
        return typed(SecretDigest, value)
    return typed(Secret, value, strict)


def _members(kind: Any) -> _Reader:
    names = vars(sys.modules[kind.__module__])
    hints = get_type_hints(kind, names, names)  # and not the members of the class, of which one is called bytes
    rows = {f.metadata.get("name", f.name): (f.name, _reader(hints[f.name]), f.default is MISSING) for f in fields(kind)}

    def read(value: Any, at: str, strict: bool) -> Any:
        if not isinstance(value, dict):
            raise DecodeError(f"{at or '/'}: {_name(value)} in the place of an object")
        found: Dict[str, Any] = {}
        for name, member in value.items():
            row = rows.get(name)
            if row is not None:
                found[row[0]] = row[1](member, f"{at}/{name}", strict)
            elif strict:
                raise DecodeError(f"{at}/{name}: no such member of {kind.__name__}")
        for name, row in rows.items():
            if row[2] and row[0] not in found:
                raise DecodeError(f"{at}/{name}: it is missing")
        return kind(**found)

    return read


def _name(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def text_of(content: bytes) -> Optional[str]:
    """Bytes as text, if they are UTF-8."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None
