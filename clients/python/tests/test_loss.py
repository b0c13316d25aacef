"""What is done when connections break and answers get lost, told by a supervisor that does exactly that."""

import asyncio
import json
import os
import signal
import socket
import tempfile
import threading
import time
import unittest
from typing import Any, Awaitable, Callable, Dict, List, Tuple, Union
from unittest import mock

from stockade import AsyncStockade, Conflict, Denied, Gone, Interrupted, ProtocolError, Stockade, Unavailable

Said = Tuple[str, Dict[str, str], bytes]
Part = Tuple[Union[bytes, Callable[[], bytes]], bool]


def receipt(op: str, outcome: str = "ok", code: str = "", **payload: Any) -> bytes:
    document = {"version": 1, "intent_id": "sha256:01", "op": op, "principal": {"uid": 0, "gid": 0}, "outcome": outcome, "receipt_status": "ok",
                "session_id": "s-1", "exec_id": "x-1", "payload": payload, "admitted_at_ns": 1, "admitted_at": "", "settled_at_ns": 1, "settled_at": ""}
    if code:
        document["error_code"] = code
    return json.dumps(document).encode()


def answer(body: bytes, status: int = 200, more: str = "") -> bytes:
    return f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{more}Content-Length: {len(body)}\r\n\r\n".encode() + body


def lines(*events: Dict[str, Any]) -> bytes:
    chunks = b""
    for event in events:
        line = json.dumps(event).encode() + b"\n"
        chunks += b"%x\r\n%s\r\n" % (len(line), line)
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks


VERSION = answer(b'{"version":"1","api":1,"operations":[]}')
END = b"0\r\n\r\n"
RAN = answer(receipt("host.exec", exec={"status": "ok", "exit_code": 0}))
BEGUN = answer(json.dumps({"intent_id": "sha256:01", "exec_id": "x-1", "session_id": "s-1", "state": "running", "cursor": "0.0.0"}).encode(), 202)
OPENED = answer(receipt("host.session.open", open={"status": "ready"}))
RESTARTED = answer(receipt("host.exec", "faulted", "supervisor_restarted", exec={"status": "error", "exit_code": -1}), 503)


class Supervisor:
    """Answers each request with the next line of its part: bytes, or what makes them, and then whether the connection is broken
    off. Behind its part it is silent."""

    def __init__(self, *part: Part, deaf: bool = False, path: str = "") -> None:
        self.part = list(part)
        self.deaf = deaf  # to bodies
        self.said: List[Said] = []
        self.conversations: List[threading.Thread] = []
        self.path = path or os.path.join(tempfile.mkdtemp(prefix="stockade-loss-"), "s")
        self.dir = os.path.dirname(self.path)
        os.makedirs(self.dir, exist_ok=True)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self) -> None:
        while True:
            try:
                conn, _ = self.listener.accept()
            except OSError:
                return
            one = threading.Thread(target=self.converse, args=(conn,))
            one.start()
            self.conversations.append(one)

    def converse(self, conn: socket.socket) -> None:
        with conn, conn.makefile("rb") as asked:
            while self.request(asked) and self.part:
                said, broken = self.part.pop(0)
                try:
                    conn.sendall(said() if callable(said) else said)
                except BrokenPipeError:
                    broken = True
                if broken:
                    break

    def request(self, asked: Any) -> bool:
        line = asked.readline().decode().strip()
        headers: Dict[str, str] = {}
        for raw in iter(asked.readline, b"\r\n"):
            if not raw:
                return False
            name, _, value = raw.decode().strip().partition(": ")
            headers[name] = value
        self.said.append((line, headers, b"" if self.deaf else asked.read(int(headers.get("Content-Length", 0)))))
        return bool(line)

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in [self.thread] + self.conversations:
            thread.join(5)
        os.unlink(self.path)
        os.rmdir(self.dir)

    @property
    def keys(self) -> List[str]:
        return [headers.get("Idempotency-Key", "") for _, headers, _ in self.said]


class Loss(unittest.TestCase):
    def play(self, act: Callable[[Stockade], Any], *part: Part, deaf: bool = False, patience: float = 10) -> Supervisor:
        supervisor = Supervisor(*part, deaf=deaf)
        try:
            with Stockade(supervisor.path, patience=patience) as client:
                act(client)
        finally:
            supervisor.close()
        self.assertEqual(supervisor.part, [])
        return supervisor

    def exec(self, client: Stockade, **more: Any) -> None:
        self.assertEqual(client.session("s-1").exec(["true"], **more).exit_code, 0)

    def test_an_answer_that_got_lost_anywhere(self) -> None:
        for cut in (0, 1, 17, 60, len(RAN) - 1):
            with self.subTest(cut):
                supervisor = self.play(self.exec, (RAN[:cut], True), (RAN[:cut], True), (RAN, False))
                self.assertEqual(len(set(supervisor.keys)), 1)
                self.assertEqual(len({body for _, _, body in supervisor.said}), 1)

    def test_an_idle_connection_that_has_ended(self) -> None:
        def act(client: Stockade) -> None:
            self.exec(client)
            self.exec(client)

        self.play(act, (RAN, True), (RAN, False))

    def test_moments(self) -> None:
        for code in ("shutting_down", "too_many_connections", "too_many_requests", "idempotency_in_flight"):
            with self.subTest(code):
                busy = answer(json.dumps({"error": {"code": code, "message": ""}}).encode(), 503)
                supervisor = self.play(self.exec, (busy, False), (busy, True), (RAN, False))
                self.assertEqual(len(set(supervisor.keys)), 1)

    def test_a_command_that_a_restart_cut_off_is_not_run_again(self) -> None:
        def act(client: Stockade) -> None:
            with self.assertRaises(Interrupted) as e:
                self.exec(client)
            self.assertEqual((e.exception.code, e.exception.receipt_id), ("supervisor_restarted", "sha256:01"))

        self.play(act, (RESTARTED, False))
        self.play(lambda client: self.assertRaises(Interrupted, self.exec, client, repeatable=True, key="mine"), (RESTARTED, False))

    def test_what_may_happen_again_does_with_another_key(self) -> None:
        supervisor = self.play(lambda client: self.exec(client, repeatable=True), (RESTARTED, False), (RAN, False))
        self.assertEqual(len(set(supervisor.keys)), 2)
        cut = answer(receipt("host.session.open", "faulted", "supervisor_restarted"), 503)
        supervisor = self.play(lambda client: client.open(), (cut, False), (OPENED, False))
        self.assertEqual(len(set(supervisor.keys)), 2)

    def test_input_is_asked_again_as_the_same_input(self) -> None:
        cut = answer(receipt("host.process.input", "faulted", "supervisor_restarted", control={"status": "error"}), 503)
        done = answer(receipt("host.process.input", control={"status": "duplicate"}))
        supervisor = self.play(lambda client: self.assertEqual(client.execution("x-1").write("abc"), 3), (cut, False), (done, False))
        self.assertEqual((len(set(supervisor.keys)), len({body for _, _, body in supervisor.said})), (2, 1))

    def test_input_that_is_read_slowly_is_written_to_its_end(self) -> None:
        def full(n: int) -> bytes:
            return answer(receipt("host.process.input", "faulted", "stdin_full", control={"status": "error", "bytes": n}), 429)

        done = answer(receipt("host.process.input", control={"status": "accepted", "bytes": 3}))
        supervisor = self.play(lambda client: self.assertEqual(client.execution("x-1").write("aé€", close=True), 6),
                               (full(1), False), (full(0), False), (full(3), False), (done, False))
        asked = [json.loads(body) for _, _, body in supervisor.said]
        self.assertEqual([a["data"] for a in asked], [
            {"inline_text": {"text": "aé€"}}, {"inline_text": {"text": "é€"}}, {"inline_text": {"text": "é€"}}, {"inline_bytes": {"bytes": "gqw="}}])
        self.assertEqual((len({a["input_id"] for a in asked}), {a["close"] for a in asked}), (4, {True}))

    def test_large_input_travels_in_parts(self) -> None:
        done = answer(receipt("host.process.input", control={"status": "accepted", "bytes": 1}))
        text = "€" * 100000
        supervisor = self.play(lambda client: self.assertEqual(client.execution("x-1").write(text, close=True), 300000), *[(done, False)] * 3)
        asked = [json.loads(body) for _, _, body in supervisor.said]
        self.assertEqual("".join(a["data"]["inline_text"]["text"] for a in asked), text)
        self.assertEqual([a.get("close") for a in asked], [None, None, True])

    def test_a_write_that_a_restart_cut_off_is_told(self) -> None:
        cut = answer(receipt("host.fs.write_file", "faulted", "supervisor_restarted"), 503)
        with self.assertRaises(Interrupted) as e:
            self.play(lambda client: client.session("s-1").write_file("f", ""), (cut, False))
        self.assertEqual(e.exception.code, "supervisor_restarted")

    def test_a_call_of_a_tool(self) -> None:
        catalogue = answer(json.dumps({"profile": "p", "tools": [{"name": n, "description": "", "input_schema": {}, "definition": {}, "operations": [], "read_only": r}
                                                                 for n, r in (("read", True), ("write", False))]}).encode())
        told = answer(json.dumps({"result": {}, "tool": "read", "ok": True, "status": "ok", "receipts": []}).encode())
        supervisor = self.play(lambda client: client.session("s-1").call_tool("p", {"name": "read"}), (b"", True), (catalogue, False), (told, False))
        self.assertEqual(set(supervisor.keys), {""})
        self.play(lambda client: self.assertRaises(Interrupted, client.session("s-1").call_tool, "p", {"name": "write"}), (b"", True), (catalogue, False))

    def test_a_stream_goes_on_where_it_was(self) -> None:
        def at(cursor: str, text: str) -> Dict[str, Any]:
            return {"kind": "output", "cursor": cursor, "stream": "stdout", "bytes": text}

        first, second, third = at("0.1.0", "YQ=="), at("0.2.0", "Yg=="), at("0.3.0", "Yw==")
        last = {"kind": "receipt", "receipt": json.loads(receipt("host.exec"))}
        half = lines(second)[:-9]

        def act(client: Stockade) -> None:
            with client.execution("x-1").events() as events:
                self.assertEqual((next(events).bytes, events.cursor), (b"a", "0.1.0"))
                self.assertEqual(b"".join(e.bytes or b"" for e in events), b"bc")

        supervisor = self.play(act, (lines({"kind": "keepalive"}, first), True), (half, True), (b"", True), (lines(second, third) + END, False), (lines(last) + END, False))
        self.assertEqual([line.split()[1].rpartition("/")[2] for line, _, _ in supervisor.said],
                         ["output", "output?after=0.1.0", "output?after=0.1.0", "output?after=0.1.0", "output?after=0.3.0"])

    def test_a_stream_that_is_refused(self) -> None:
        denied = answer(receipt("host.process.output", "denied", "operation_not_allowed"), 403)
        self.play(lambda client: self.assertRaises(Denied, next, client.execution("x-1").events()), (denied, True))
        gone = answer(json.dumps({"gone": {"from": "1", "first_available": "7"}}).encode(), 410)

        def act(client: Stockade) -> None:
            with self.assertRaises(Gone) as e:
                next(client.events(after=1))
            self.assertEqual(e.exception.first_available, "7")

        self.play(act, (gone, True))
        old = answer(json.dumps({"error": {"code": "gone", "message": "events up to 7 are not kept any more"}}).encode(), 410)
        self.play(lambda client: self.assertRaises(Gone, next, client.events(after=1)), (old, True))
        self.play(lambda client: self.assertRaises(ProtocolError, next, client.execution("x-1").events()), (answer(b"{}"), True))

    def test_events_end_when_the_supervisor_says_so(self) -> None:
        notice = {"seq": 3, "kind": "SESSION_STATE", "at_ns": 1, "at": ""}
        self.play(lambda client: self.assertEqual([n.seq for n in client.session("s-1").events()], [3]), (lines({"kind": "keepalive"}, notice) + END, False))

    def test_patience_ends(self) -> None:
        supervisor = Supervisor((RAN, True))
        with Stockade(supervisor.path, patience=0.3) as client:
            self.exec(client)
            supervisor.close()
            with self.assertRaises(Unavailable):
                self.exec(client)
            with self.assertRaises(Unavailable):
                next(client.execution("x-1").events())

    def test_patience_begins_with_the_loss(self) -> None:
        def late(said: bytes) -> Callable[[], bytes]:
            return lambda: time.sleep(1) or said  # longer than patience

        self.play(lambda client: client.session("s-1").exec(["true"]), (late(b""), True), (late(RAN[:9]), True), (RAN, False), patience=0.5)
        last = {"kind": "receipt", "receipt": json.loads(receipt("host.exec", exec={"status": "ok", "exit_code": 0}))}
        supervisor = self.play(lambda client: self.assertEqual([e.kind for e in client.session("s-1").stream(["true"])], ["receipt"]),
                               (BEGUN, False), (late(lines({"kind": "keepalive"})), True), (late(b""), True), (lines(last) + END, False), patience=0.5)
        self.assertEqual([line.split()[0] for line, _, _ in supervisor.said], ["POST", "GET", "GET", "GET"])  # and no cancel

    def test_an_upload_that_is_refused_before_it_was_heard(self) -> None:
        no = answer(json.dumps({"error": {"code": "blob_mismatch", "message": ""}}).encode(), 409, "Connection: close\r\n")
        self.play(lambda client: self.assertRaises(Conflict, client.put_blob, bytes(8 << 20)), (no, True), deaf=True)


def silence(until: threading.Event) -> Part:
    return lambda: until.wait(30) and b"" or b"", True


#: a call of either client, which gives what it does, or what is to be awaited for it
Call = Callable[[Any], Any]


class Interruption(unittest.TestCase):
    """Who is interrupted in a call: a task that is canceled, and a thread that gets a signal."""

    def interrupted(self, path: str, call: Call, when: Callable[[], Any], then: Callable[[], Any] = lambda: None) -> None:
        """Has the blocking call interrupted once `when` is true, and something done then."""

        main = threading.main_thread().ident or 0

        def interrupt() -> None:
            while not when():
                time.sleep(0.01)
            signal.pthread_kill(main, signal.SIGINT)
            then()

        with Stockade(path, patience=10) as client:
            client.version()
            thread = threading.Thread(target=interrupt)
            thread.start()
            with self.assertRaises(KeyboardInterrupt):
                call(client)
            thread.join()

    def canceled(self, path: str, call: Call, when: Callable[[], Any], then: Callable[[], Any] = lambda: None) -> None:
        """The same of a task."""

        async def main() -> None:
            async with AsyncStockade(path, patience=10) as client:
                await client.version()
                task = asyncio.ensure_future(awaited(call(client)))
                while not when():
                    await asyncio.sleep(0.01)
                task.cancel()
                then()
                with self.assertRaises(asyncio.CancelledError):
                    await task

        async def awaited(called: Awaitable[Any]) -> None:
            await called

        asyncio.run(main())

    def test_what_may_have_been_begun_is_ended(self) -> None:
        leave = answer(json.dumps({"intent_id": "sha256:01", "exec_id": "", "session_id": "", "approval_id": "a-1", "state": "queued", "cursor": "0.0.0"}).encode(), 202)
        rows: List[Tuple[str, Call, bytes, str, Dict[str, str]]] = [
            ("exec", lambda client: client.session("s-1").exec(["true"]), BEGUN, "host.process.cancel", {"exec_id": "x-1"}),
            ("start", lambda client: client.session("s-1").start(["true"]), BEGUN, "host.process.cancel", {"exec_id": "x-1"}),
            ("shell", lambda client: client.session("s-1").shell(), BEGUN, "host.shell.close", {"exec_id": "x-1", "mode": "force"}),
            ("open", lambda client: client.open(), OPENED, "host.session.close", {"session_id": "s-1", "mode": "force"}),
            ("an open that waits for leave", lambda client: client.open(), leave, "host.approval.deny", {"approval_id": "a-1"}),
        ]
        for leaving in (self.interrupted, self.canceled):
            for name, call, begun, end, body in rows:
                with self.subTest(name, leaving=leaving.__name__):
                    over = threading.Event()
                    supervisor = Supervisor((VERSION, False), silence(over), (begun, False), (answer(receipt(end)), False))
                    try:
                        leaving(supervisor.path, call, lambda: len(supervisor.said) == 2)
                    finally:
                        over.set()
                        supervisor.close()
                    _, (_, first, asked), (_, second, again), (ended, _, how) = supervisor.said
                    self.assertEqual((second.pop("Prefer"), second, again), ("respond-async", first, asked))
                    self.assertEqual((ended.split()[1], json.loads(how)), ("/v1/ops/" + end, body))

    def test_what_was_not_sent_is_not_begun_for_that(self) -> None:
        for leaving in (self.interrupted, self.canceled):
            with self.subTest(leaving.__name__):
                supervisor = Supervisor((VERSION, True))
                later: List[Supervisor] = []

                def called(client: Any) -> Any:
                    supervisor.close()  # it has answered, and is waited for
                    nonlocal between
                    between = time.monotonic() + 0.3
                    return client.session("s-1").exec(["true"])

                between = float("inf")
                try:
                    leaving(supervisor.path, called, lambda: time.monotonic() > between, lambda: later.append(Supervisor((RAN, False), path=supervisor.path)))
                finally:
                    for s in later:
                        s.close()
                self.assertEqual([s.said for s in later], [[]])

    def test_settling_is_short(self) -> None:
        for leaving, edge in ((self.interrupted, "blocking"), (self.canceled, "aio")):
            with self.subTest(leaving.__name__), mock.patch(f"stockade.{edge}.edge.SETTLING", 1.0):
                over = threading.Event()
                supervisor = Supervisor((VERSION, False), silence(over), silence(over), silence(over))

                def work(client: Any) -> None:
                    with client.session("s-1") as s:
                        s.exec(["true"])

                async def awaited(client: Any) -> None:
                    async with client.session("s-1") as s:
                        await s.exec(["true"])

                begun = time.monotonic()
                try:
                    leaving(supervisor.path, work if edge == "blocking" else awaited, lambda: len(supervisor.said) == 2)
                    self.assertEqual([line.split()[1] for line, _, _ in supervisor.said[1:]], ["/v1/exec", "/v1/exec", "/v1/close"])
                    self.assertLess(time.monotonic() - begun, 25)  # silence takes longer
                finally:
                    over.set()
                    supervisor.close()
