"""Writes what follows from other files, so that nothing is said twice.

    python3 generate.py          writes
    python3 generate.py --check  says what is not as it would be written

  stockade/model.py  the types of the contract, from docs/api/openapi.json
  stockade/codes.py  the codes with their status and meaning, from docs/api/errors.md
  stockade/blocking  the client that blocks, from stockade/aio: one is the other without `async` and `await`
"""

import json
import keyword
import re
import sys
import textwrap
from pathlib import Path
from typing import Any, Dict, List

HERE = Path(__file__).resolve().parent
API = HERE.parent.parent / "docs" / "api"
PACKAGE = HERE / "stockade"

SCALARS = {"string": "str", "integer": "int", "boolean": "bool"}


def annotation(schema: Any) -> str:
    """The type of a value, as Python says it."""
    if schema is True or not set(schema) - {"description"}:
        return "Any"
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[1]
    if "oneOf" in schema:
        return "EnvValue"  # the one value of several shapes
    kind = schema["type"]
    if kind == "array":
        return f"Tuple[{annotation(schema['items'])}, ...]"
    if kind == "object":
        if schema.get("properties") == {}:
            return "Empty"
        more = schema.get("additionalProperties", True)
        return "Mapping[str, Any]" if more is True else f"Mapping[str, {annotation(more)}]"
    if schema.get("contentEncoding") == "base64":
        return "bytes"
    return SCALARS[kind]


def comment(text: str, indent: str) -> List[str]:
    return textwrap.wrap(text, 112, initial_indent=indent + "#: ", subsequent_indent=indent + "#: ")


def dataclass(name: str, schema: Dict[str, Any]) -> List[str]:
    required = schema.get("required", [])
    names = list(schema["properties"])
    lines = ["@dataclass(frozen=True, repr=False)", f"class {name}(Record):"]
    lines += textwrap.wrap('"""' + schema.get("description", name).replace("\\", "\\\\") + '"""', 112, initial_indent="    ", subsequent_indent="    ")
    if names:
        lines.append("")
    for field in [n for n in required] + [n for n in names if n not in required]:
        prop = schema["properties"][field]
        if prop is not True and "description" in prop:
            lines += comment(prop["description"], "    ")
        python = field + "_" if keyword.iskeyword(field) else field
        kind = annotation(prop)
        if "bytes" in names:  # in this class the name is a member's
            kind = re.sub(r"\bbytes\b", "builtins.bytes", kind)
        if field in required:
            lines.append(f"    {python}: {kind}" + (f' = member(metadata={{"name": "{field}"}})' if python != field else ""))
        elif python != field:
            lines.append(f'    {python}: Optional[{kind}] = member(default=None, metadata={{"name": "{field}"}})')
        else:
            lines.append(f"    {python}: Optional[{kind}] = None")
    return lines


def model() -> str:
    schemas = json.loads((API / "openapi.json").read_text())["components"]["schemas"]
    lines = [
        '"""The types of the contract. Made by generate.py from docs/api/openapi.json.',
        "",
        "A member that may be absent is None when it is. Integers are exact, bytes are bytes; a name that Python",
        'keeps for itself ends in an underscore.',
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "import builtins",
        "from dataclasses import dataclass",
        "from dataclasses import field as member",
        "from typing import Any, Mapping, Optional, Tuple",
        "",
        "from .codec import Empty, EnvValue, Record",
    ]
    for name in sorted(schemas):
        lines += ["", ""] + dataclass(name, schemas[name])
    return "\n".join(lines) + "\n"


def codes() -> str:
    rows = re.findall(r"^\| `([^`]+)` \| (\d+) \| (.*) \|$", (API / "errors.md").read_text(), re.MULTILINE)
    lines = [
        '"""The codes of the contract. Made by generate.py from docs/api/errors.md.',
        "",
        "A policy may deny with codes of its own, which are not here.",
        '"""',
        "",
        "from typing import Dict, Tuple",
        "",
        "#: code: (status of HTTP, meaning)",
        "CODES: Dict[str, Tuple[int, str]] = {",
    ]
    for code, status, meaning in rows:
        lines.append(f"    {code!r}: ({status}, {meaning!r}),".replace("'", '"') if "'" not in meaning and '"' not in meaning else f'    "{code}": ({status}, {meaning!r}),')
    return "\n".join(lines) + "\n}\n"


# What the client that blocks says in the place of what the other says.
BLOCKING = [
    (r"async def ", "def "),
    (r"async with ", "with "),
    (r"async for ", "for "),
    (r"await ", ""),
    (r"__aenter__", "__enter__"),
    (r"__aexit__", "__exit__"),
    (r"__aiter__", "__iter__"),
    (r"__anext__", "__next__"),
    (r"StopAsyncIteration", "StopIteration"),
    (r"asyncio\.CancelledError", "KeyboardInterrupt"),
    (r"^import asyncio\n", ""),
    (r"\baclose\b", "close"),
    (r"A task that is canceled here", "Who is interrupted here"),
    (r"\bAsync([A-Z])", r"\1"),
]

def blocking(name: str) -> str:
    text = (PACKAGE / "aio" / name).read_text()
    for pattern, word in BLOCKING:
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return f"# Made by generate.py from aio/{name}, which is the one to read and to change.\n" + text


def outputs() -> Dict[Path, str]:
    made = {PACKAGE / "model.py": model(), PACKAGE / "codes.py": codes()}
    for source in sorted((PACKAGE / "aio").glob("*.py")):
        if source.name not in ("edge.py", "__init__.py"):
            made[PACKAGE / "blocking" / source.name] = blocking(source.name)
    return made


def main() -> int:
    stale = 0
    for path, text in outputs().items():
        if path.exists() and path.read_text() == text:
            continue
        if "--check" in sys.argv[1:]:
            print(f"{path.relative_to(HERE)} is not what generate.py would write")
            stale = 1
        else:
            path.write_text(text)
    return stale


if __name__ == "__main__":
    sys.exit(main())
