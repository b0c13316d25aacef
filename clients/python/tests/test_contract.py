"""The golden requests and replies of docs/api/routes.md, through the types and back (issue of the contract: Python's part)."""

import dataclasses
import functools
import json
import re
import unittest
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

from stockade import codec, model
from stockade.codec import DecodeError
from stockade.failure import StockadeError, of_receipt
from stockade.request import refusal

API = Path(__file__).resolve().parents[3] / "docs" / "api"

#: requests that the contract refuses for their form, by what it says then
OF_FORM = {"decode_error", "unknown_member", "duplicate_member", "too_deep"}


class Example(NamedTuple):
    route: str
    target: str
    headers: Dict[str, str]
    body: str
    status: int
    reply: str


@functools.lru_cache(None)
def openapi() -> Dict[str, Any]:
    paths: Dict[str, Any] = json.loads((API / "openapi.json").read_text())["paths"]
    return paths


@functools.lru_cache(None)
def routes() -> List[str]:
    return sorted((f"{method.upper()} {path}" for path, row in openapi().items() for method in row), key=lambda r: r.count("{"))


def route_of(line: str) -> str:
    """The route of a request line. An example is not always below the heading of its own."""
    return next(r for r in routes() if re.fullmatch(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(r)), line.partition("?")[0]))


def examples() -> Iterator[Example]:
    asked = ""
    for block in re.findall(r"^```http\n(.*?)\n```$", (API / "routes.md").read_text("utf-8"), re.MULTILINE | re.DOTALL):
        if re.match(r"[A-Z]+ /", block):
            asked = block
        else:
            head, _, body = asked.partition("\n\n")
            lines = head.split("\n")
            status, _, reply = block.partition("\n\n")
            headers = {name: value for name, _, value in (line.partition(": ") for line in lines[1:])}
            yield Example(route_of(lines[0]), lines[0].split(" ", 1)[1], headers, body, int(status.split()[0]), reply)


def schema(content: Dict[str, Any], media: str) -> str:
    return str(content.get(media, {}).get("schema", {}).get("$ref", "")).rsplit("/", 1)[-1]


def kinds(route: str) -> Tuple[str, str, Dict[str, Any]]:
    """The types of a route's body and answer, as the contract names them."""
    method, path = route.split(" ")
    row = openapi()[path][method.lower()]
    body = schema(row.get("requestBody", {}).get("content", {}), "application/json")
    return body, schema(row["responses"]["200"].get("content", {}), "application/json"), row


class Contract(unittest.TestCase):
    def there_and_back(self, kind: Any, document: str) -> Any:
        value = codec.decode(kind, document, strict=True)
        self.assertEqual(json.loads(codec.encode(value)), json.loads(document))
        return value

    def setUp(self) -> None:
        if not API.exists():
            self.skipTest("the documents of the contract are not beside the package")

    def test_every_route_is_there(self) -> None:
        shown = [e.route for e in examples()]
        self.assertEqual(set(routes()) - set(shown), {"GET /v1/openapi.json"})
        self.assertGreater(len(shown), 150)

    def test_requests(self) -> None:
        n = 0
        for e in examples():
            kind, _, row = kinds(e.route)
            if not e.body or "application/octet-stream" in row.get("requestBody", {}).get("content", {}):
                continue
            with self.subTest(e.route, body=e.body):
                body = e.body
                if kind == "":  # of any operation
                    self.assertEqual(e.route, "POST /v1/ops/{op}")
                    json.loads(body)
                    continue
                members = json.loads(body)
                for name in re.findall(r"\{(\w+)\}", e.route):
                    if name in {f.name for f in dataclasses.fields(getattr(model, kind))}:
                        members.setdefault(name, "of-the-path")  # the path may say what the body leaves out
                if e.route == "POST /v1/shells":
                    members.setdefault("argv", [])  # it has a default there
                said = json.loads(e.reply).get("error", {}).get("code") if e.status == 400 else None
                if said in OF_FORM:
                    with self.assertRaises(DecodeError):
                        codec.decode(getattr(model, kind), json.dumps(members), strict=True)
                else:
                    self.there_and_back(getattr(model, kind), json.dumps(members))
                n += 1
        self.assertGreater(n, 60)

    def test_replies(self) -> None:
        seen: List[str] = []
        for e in examples():
            _, kind, row = kinds(e.route)
            with self.subTest(e.route, status=e.status, target=e.target):
                streamed = e.headers.get("Accept", "")
                if streamed and e.status == 200:
                    seen.extend(self.events(streamed, e.reply))
                elif "application/octet-stream" in row["responses"]["200"].get("content", {}) and e.status == 200:
                    self.assertEqual(e.reply, "some content")
                elif e.status == 202:
                    self.there_and_back(model.Shell if e.route == "POST /v1/shells" else model.Pending, e.reply)
                    seen.append("202")
                elif e.status < 400:
                    value = self.there_and_back(getattr(model, kind), e.reply)
                    self.assertIsNone(refusal(e.status, e.reply.encode()))
                    if isinstance(value, model.Receipt) and e.route != "GET /v1/receipts/{intent_id}":
                        self.assertIsNone(of_receipt(value))
                else:
                    self.refused(e)
                    seen.append("refused")
        self.assertLessEqual({"accepted", "frame", "output", "receipt", "202", "refused"}, set(seen))

    def refused(self, e: Example) -> None:
        failed = refusal(e.status, e.reply.encode())
        assert isinstance(failed, StockadeError)
        said = json.loads(e.reply)
        if "error" in said:
            self.there_and_back(model.ErrorBody, e.reply)
            self.assertEqual((failed.code, failed.message, failed.receipt), (said["error"]["code"], said["error"]["message"], None))
            return
        receipt = self.there_and_back(model.Receipt, e.reply)
        self.assertEqual((failed.code, failed.receipt, failed.receipt_id), (said["error_code"], receipt, said["intent_id"]))
        self.assertEqual(type(failed).__name__ == "Denied", said["outcome"] == "denied")

    def events(self, media: str, reply: str) -> List[str]:
        if media == "text/event-stream":
            lines = re.findall(r"^data: (.*)$", reply, re.MULTILINE)
        else:
            lines = reply.strip().split("\n")
        return [self.there_and_back(model.Event, line).kind for line in lines]
