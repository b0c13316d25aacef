"""Answers byte by byte, and whether to ask again."""

import io
import unittest

from stockade import Conflict, Denied, Interrupted, ProtocolError, StockadeError, Unavailable
from stockade.codes import CODES
from stockade.failure import class_of
from stockade.http import KEYED, ONCE, READ, Answer, Request
from stockade.model import Scope
from stockade.request import operate, refusal, renewed, scoped
from stockade.retry import Attempts, Lost

ANSWERS = [
    ("sized", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", b"hello", True),
    ("nothing", b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
    ("empty", b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", b"", True),
    ("chunked", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nB;x=1\r\n, and more.\r\n0\r\n\r\n", b"hello, and more.", True),
    ("continued", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", b"ok", True),
    ("last", b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno", b"no", False),
]


class Answers(unittest.TestCase):
    def test_in_any_pieces(self) -> None:
        for name, raw, body, reusable in ANSWERS:
            for size in (1, 2, 3, 7, len(raw)):
                with self.subTest(name, size=size):
                    answer, got = Answer(), b""
                    for i in range(0, len(raw), size):
                        self.assertFalse(answer.done)
                        answer.feed(raw[i : i + size])
                        got += answer.take()
                    self.assertEqual((got, answer.done, answer.reusable), (body, True, reusable))

    def test_cut_off_anywhere(self) -> None:
        for name, raw, _, _ in ANSWERS:
            for end in range(len(raw) - 1):
                with self.subTest(name, end=end), self.assertRaises(EOFError):
                    answer = Answer()
                    answer.feed(raw[: end + 1])
                    answer.feed(b"")

    def test_until_the_end(self) -> None:
        answer = Answer()
        answer.feed(b"HTTP/1.1 200 OK\r\n\r\nsome")
        self.assertFalse(answer.done)
        answer.feed(b"")
        self.assertEqual((answer.take(), answer.done, answer.reusable), (b"some", True, False))

    def test_what_is_no_answer(self) -> None:
        for raw in (b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
                    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc", b"x" * 70000):
            with self.subTest(raw[:40]), self.assertRaises(ProtocolError):
                Answer().feed(raw)

    def test_an_answer_that_was_not_asked_for(self) -> None:
        answer = Answer()
        answer.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n")
        self.assertFalse(answer.reusable)


class Requests(unittest.TestCase):
    def test_bytes(self) -> None:
        request = Request("GET", "/v1/x", (("after", "a b&c=é/+"),), headers=(("Accept", "x"),))
        self.assertEqual(b"".join(request.pieces()), b"GET /v1/x?after=a%20b%26c%3D%C3%A9%2F%2B HTTP/1.1\r\nHost: stockade\r\nAccept: x\r\n\r\n")

    def test_content_is_sent_from_its_beginning_each_time(self) -> None:
        request = Request("PUT", "/v1/blobs", body=io.BytesIO(b"content"), size=7)
        for _ in range(2):
            self.assertTrue(b"".join(request.pieces()).endswith(b"Content-Length: 7\r\n\r\ncontent"))
        with self.assertRaises(ValueError):
            b"".join(Request("PUT", "/v1/blobs", body=io.BytesIO(b"con"), size=7).pieces())

    def test_keys(self) -> None:
        first, second = operate("/v1/exec", {}), operate("/v1/exec", {})
        self.assertNotEqual(first.headers, second.headers)
        self.assertNotEqual(renewed(first).headers, first.headers)
        self.assertEqual(b"".join(first.pieces()), b"".join(first.pieces()))
        for bad in ("x" * 129, "é", "a\nb"):
            with self.subTest(bad), self.assertRaises(ValueError):
                operate("/v1/exec", {}, bad)

    def test_a_scope_is_ascii(self) -> None:
        self.assertIn(("Stockade-Scope", '{"agent_id": "\\u00e9"}'), scoped(Request("GET", "/"), Scope(agent_id="é")).headers)


class Codes(unittest.TestCase):
    def test_every_code_has_a_class(self) -> None:
        for code, (status, _) in CODES.items():
            with self.subTest(code):
                kind = class_of(code)
                self.assertIsNot(kind, StockadeError)
                if status == 403:
                    self.assertIs(kind, Denied)
                if status == 409:
                    self.assertIs(kind, Conflict)
        self.assertIs(class_of("of_a_newer_supervisor", 409), Conflict)
        self.assertIs(class_of("supervisor_restarted"), Interrupted)

    def test_answers_without_a_code(self) -> None:
        for body in (b"", b"<html>", b"{}", b"[]", b'{"error":1}', b'{"error":{"code":1}}', b'{"intent_id":"x","outcome":"ok"}'):
            with self.subTest(body):
                self.assertIsInstance(refusal(500, body), ProtocolError)


class Retries(unittest.TestCase):
    def pauses(self, request: Request, lost: Lost, met: bool = True, patience: float = 10) -> int:
        now, n = 100.0, 0
        attempts = Attempts(patience, met)
        try:
            while True:
                if lost.sent:
                    attempts.connected(now)
                now += attempts.after_loss(request, lost, now)
                n += 1
        except StockadeError as e:
            self.assertLessEqual(now, 100 + patience)
            self.failed = e
            return n

    def test_what_was_not_sent_is_always_asked_again(self) -> None:
        for repeat in (READ, KEYED, ONCE):
            self.assertGreater(self.pauses(Request("POST", "/", repeat=repeat), Lost("", sent=False)), 10)
            self.assertIsInstance(self.failed, Unavailable)

    def test_what_was_sent_is_asked_again_where_that_is_the_same(self) -> None:
        for repeat, method, some, kind in ((READ, "GET", True, Unavailable), (READ, "POST", True, Unavailable), (KEYED, "POST", True, Interrupted),
                                           (ONCE, "POST", False, Interrupted)):
            with self.subTest(repeat):
                self.assertEqual(self.pauses(Request(method, "/", repeat=repeat), Lost("", sent=True)) > 0, some)
                self.assertIsInstance(self.failed, kind)

    def test_a_supervisor_that_was_never_there_is_not_waited_for(self) -> None:
        nobody = Lost("", sent=False, absent=True)
        self.assertEqual(self.pauses(Request("GET", "/"), nobody, met=False), 0)
        self.assertGreater(self.pauses(Request("GET", "/"), nobody, met=True), 10)
        self.assertGreater(self.pauses(Request("GET", "/"), Lost("", sent=True), met=False), 10)

    def test_patience_begins_with_the_loss(self) -> None:
        read, cut, nobody = Request("GET", "/"), Lost("", sent=True), Lost("", sent=False, absent=True)
        attempts = Attempts(10, True)
        attempts.connected(0)
        attempts.after_loss(read, cut, 1000)  # however long it was waited
        attempts.after_loss(read, nobody, 1009)
        attempts.connected(1009.5)
        attempts.after_loss(read, cut, 1014.5)  # while somebody is there the clock stands still
        attempts.after_loss(read, nobody, 1014.9)
        with self.assertRaises(Unavailable):
            attempts.after_loss(read, nobody, 1015.1)
        attempts.connected(1016)
        attempts.after_loss(read, cut, 1026)  # it was there for as long as patience
        attempts.after_loss(read, nobody, 1035)
        attempts.progress()
        self.assertLess(attempts.after_loss(read, nobody, 1100), 0.1)

    def test_who_drops_each_connection_is_given_up(self) -> None:
        attempts, now = Attempts(10, True), 0.0
        with self.assertRaises(Unavailable):
            for _ in range(1000):
                attempts.connected(now)
                now += 0.1
                now += attempts.after_loss(Request("GET", "/"), Lost("", sent=True), now)

    def test_what_may_have_arrived_may_have_taken_place(self) -> None:
        operation, nobody = Request("POST", "/", repeat=KEYED), Lost("", sent=False)
        attempts = Attempts(10, True)
        attempts.connected(0)
        attempts.after_loss(operation, Lost("", sent=True), 0)
        with self.assertRaises(Interrupted):
            attempts.after_loss(operation, nobody, 100)

    def test_what_was_refused_for_a_moment_was_not_begun(self) -> None:
        for code, arrived in (("shutting_down", False), ("too_many_connections", False), ("too_many_requests", False), ("idempotency_in_flight", True)):
            with self.subTest(code):
                attempts = Attempts(10, True)
                self.assertFalse(attempts.arrived)
                attempts.connected(0)
                self.assertTrue(attempts.arrived)
                attempts.after_refusal(StockadeError(code, ""), 0)
                self.assertEqual(attempts.arrived, arrived)
                attempts.connected(0)
                attempts.after_loss(Request("GET", "/"), Lost("", sent=True), 0)
                attempts.connected(0)
                attempts.after_refusal(StockadeError(code, ""), 0)
                self.assertTrue(attempts.arrived)

    def test_only_refusals_of_a_moment_pass(self) -> None:
        attempts = Attempts(10, True)
        for code in CODES:
            passing = code in ("shutting_down", "too_many_connections", "too_many_requests", "idempotency_in_flight")
            with self.subTest(code):
                if passing:
                    self.assertGreater(attempts.after_refusal(StockadeError(code, ""), 0), 0)
                else:
                    with self.assertRaises(StockadeError):
                        attempts.after_refusal(StockadeError(code, ""), 0)
