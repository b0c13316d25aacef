"""The client that blocks, against a real supervisor."""

import hashlib
import os
import signal
import threading
import time
import unittest
from typing import Any, List

from stockade import (CommandFailed, Conflict, Denied, Invalid, NotFound, Pending, Secret, Session, Stockade, StockadeError, Unavailable, model)

from . import daemon


class Client(unittest.TestCase):
    box: daemon.Daemon
    client: Stockade

    @classmethod
    def setUpClass(cls) -> None:
        cls.box = daemon.shared()
        cls.client = Stockade(cls.box.socket)
        cls.addClassCleanup(cls.client.close)

    def session(self, **more: Any) -> Session:
        name = self.id().rsplit(".", 1)[-1]
        self.tree = self.box.tree(name)
        s = self.client.open(profile="workspace", mounts=[f"{self.tree}:/work:rw"], workdir="/work", **more)
        self.addCleanup(s.__exit__)
        return s

    def test_a_command(self) -> None:
        s = self.session()
        r = s.exec(["sh", "-c", "cat; echo $A; echo no >&2; exit 3"], stdin=b"\xff\n", env={"A": "é"})
        self.assertEqual((r.exit_code, r.stdout, r.stderr, r.status, r.ok), (3, b"\xff\n\xc3\xa9\n", b"no\n", "ok", False))
        self.assertEqual(r.text, "�\né\n")
        self.assertEqual(self.client.receipt(r.intent_id), r.receipt)
        with self.assertRaises(CommandFailed) as failed:
            r.check()
        self.assertEqual((failed.exception.result, failed.exception.receipt_id), (r, r.intent_id))
        self.assertIn("exit code 3: no", str(failed.exception))

    def test_output_of_any_size(self) -> None:
        r = self.session().exec(["head", "-c", "3000001", "/dev/zero"]).check()
        self.assertEqual(r.stdout, bytes(3000001))

    def test_a_secret_reaches_the_process_and_no_receipt(self) -> None:
        s = self.session()
        r = s.exec(["sh", "-c", "echo $K | tr a-z A-Z; cat"], env={"K": Secret("hunter2")}, stdin=Secret("swordfish")).check()
        self.assertEqual(r.stdout, b"HUNTER2\nswordfish")
        asked = self.client.decide(model.Ask("host.exec", exec=model.Exec(s.id, ("true",), env_patch={"K": Secret("hunter2")})))
        self.assertNotIn("hunter2", repr(asked) + repr(self.client.intent(r.intent_id)))

    def test_how_commands_end(self) -> None:
        s = self.session()
        late = s.exec(["sleep", "100"], timeout=0.2)
        self.assertEqual((late.status, late.details.error_code), ("timeout", "timeout"))
        with self.assertRaises(CommandFailed) as failed:
            late.check()
        self.assertEqual(failed.exception.code, "timeout")
        self.assertEqual(s.exec(["sh", "-c", "kill -9 $$"]).details.signal, "KILL")
        with self.assertRaises(Invalid) as missing:
            s.exec(["/nonesuch"])
        self.assertEqual((missing.exception.code, self.client.receipt(missing.exception.intent_id or "").outcome), ("spawn_failed", "faulted"))
        with self.assertRaises(Invalid):
            s.exec([])
        with self.assertRaises(TypeError):
            s.exec("true")

    def test_a_denial_says_why(self) -> None:
        with self.assertRaises(Denied) as denied:
            self.client.open(profile="workspace", mounts=["/etc:/work:rw"])
        e = denied.exception
        self.assertEqual((e.code, e.object), ("mount_host_path_not_allowed", "mount:/etc"))
        self.assertRegex(e.rule, r"^open/mounts\.rego:\d+ stockade\.open\.deny$")
        self.assertIn(f"stockade policy why {e.receipt_id}", e.hint)
        self.assertIn("secrets", e.message)
        self.assertEqual(e.reasons[0].code, e.code)
        self.assertEqual(self.client.receipt(e.intent_id or ""), e.receipt)

    def test_errors_of_what_never_was_an_operation(self) -> None:
        with self.assertRaises(NotFound) as missing:
            self.client.session("s-unknown").info()
        self.assertEqual((missing.exception.code, missing.exception.receipt), ("session_not_found", None))
        with self.assertRaises(NotFound) as closing:
            self.client.session("s-unknown").close()
        self.assertIsNotNone(closing.exception.receipt_id)
        with self.assertRaises(Invalid):
            self.client.do("host.exec", {"nonesuch": 1})
        with Stockade(self.box.socket + "-not") as nobody, self.assertRaises(Unavailable):
            begun = time.monotonic()
            try:
                nobody.version()
            finally:
                self.assertLess(time.monotonic() - begun, 5)

    def test_a_key_takes_place_once(self) -> None:
        s = self.session()
        argv = ["sh", "-c", "echo x >>/work/log"]
        first, second = s.exec(argv, key="once"), s.exec(argv, key="once")
        self.assertEqual(first.receipt, second.receipt)
        with self.assertRaises(Conflict) as other:
            s.exec(["true"], key="once")
        self.assertEqual(other.exception.code, "idempotency_conflict")
        s.exec(argv)
        self.assertEqual(s.read_file("log"), b"x\nx\n")

    def test_a_stream(self) -> None:
        s = self.session()
        kinds, out = [], b""
        for event in s.stream(["sh", "-c", "echo a; sleep 0.1; echo b; exit 4"]):
            kinds.append(event.kind)
            out += event.bytes or b""
        self.assertEqual((out, kinds[-1]), (b"a\nb\n", "receipt"))
        ran = self.client.executions(session_id=s.id)[0]
        again = list(self.client.execution(ran.exec_id).events(after="1.2.0"))
        self.assertEqual(b"".join(e.bytes or b"" for e in again), b"b\n")
        payload = again[-1].receipt.payload if again[-1].receipt else None
        self.assertEqual(payload.exec.exit_code if payload and payload.exec else None, 4)
        with self.assertRaises(Invalid) as cursor:
            next(self.client.execution(ran.exec_id).events(after="yesterday"))
        self.assertEqual(cursor.exception.code, "invalid_cursor")

    def test_a_stream_of_what_could_not_start(self) -> None:
        s = self.session()
        with self.assertRaises(Invalid):
            for _ in s.stream(["/nonesuch"]):
                pass

    def test_leaving_a_stream_cancels(self) -> None:
        s = self.session()
        for event in s.stream(["sh", "-c", "echo a; sleep 100"]):
            if event.bytes:
                break
        ended = self.client.executions(session_id=s.id)[0]
        self.assertEqual(ended.state, "canceled")

    def test_input(self) -> None:
        s = self.session()
        with s.start(["cat"], stdin_open=True) as x:
            self.assertEqual(x.write("hello\n"), 6)
            self.assertEqual(x.write(b"\x00\xff", close=True), 2)
            r = x.result()
        self.assertEqual(r.stdout, b"hello\n\x00\xff")
        with self.assertRaises(StockadeError) as late:
            x.write("more")
        self.assertIn(late.exception.code, ("exec_ended", "stdin_closed"))

    def test_input_of_any_size(self) -> None:
        s = self.session()
        text = '"é€"\n' * 400000
        self.assertEqual(s.exec(["wc", "-m"], stdin=text).check().text, f"{len(text)}\n")
        self.assertEqual(b"".join(e.bytes or b"" for e in s.stream(["wc", "-c"], stdin=bytes(3 << 20))), b"%d\n" % (3 << 20))
        with s.start(["sha256sum"], stdin_open=True) as x:
            size = x.write(text, close=True)
            self.assertEqual((size, x.result().text[:64]), (len(text.encode()), hashlib.sha256(text.encode()).hexdigest()))
        s.write_file("quotes", '"' * (500 << 10))  # as JSON it is twice that
        self.assertEqual(s.stat("quotes").size_bytes, 500 << 10)

    def test_what_goes_on_has_no_receipt_yet(self) -> None:
        s = self.session()
        with self.assertRaises(Pending) as command:
            self.client.do("host.exec", model.Exec(s.id, ("cat",), stdin_open=True, wait=False))
        with self.assertRaises(Pending) as shell:
            self.client.do("host.shell.open", model.Exec(s.id, ()))
        for e in (command.exception, shell.exception):
            self.assertEqual((e.session_id, e.address), (s.id, f"/v1/intents/{e.intent_id}"))
            self.assertEqual(self.client.intent(e.intent_id).intent_id, e.intent_id)
        with self.client.execution(command.exception.exec_id) as x:
            x.write("on\n", close=True)
            self.assertEqual(x.result().text, "on\n")
        with self.client.shell(shell.exception.exec_id) as again:
            self.assertEqual(again.run("echo $((6*7))").text, "42\n")

    def test_control(self) -> None:
        s = self.session()
        with s.start(["sh", "-c", "trap 'echo usr1' USR1; echo up; while :; do sleep 0.05; done"]) as x:
            with x.events() as events:
                while b"up" not in (next(events).bytes or b""):
                    pass
            self.assertEqual(x.signal("USR1").status, "signaled")
            self.assertEqual((x.pause().status, x.info().paused), ("paused", True))
            self.assertEqual(x.resume().status, "resumed")
            self.assertEqual(x.modify(timeout=50).timeout_ns, 50 * 10**9)
            self.assertIsNone(x.wait(timeout=0.05))
            with self.assertRaises(Conflict):
                x.delete()
            self.assertEqual(x.cancel(grace=0).status, "canceled")
            self.assertIn(x.cancel().status, ("canceled", "already_finished"))
        self.assertEqual(x.delete().status, "deleted")
        with self.assertRaises(NotFound):
            x.info()

    def test_files(self) -> None:
        s = self.session()
        wrote = s.write_file("a/b.txt", "one\ntwo\n", parents=True)
        self.assertTrue(wrote.created and wrote.change)
        self.assertEqual(s.read_text("a/b.txt", first_line=2, lines=1), "two\n")
        with self.assertRaises(Conflict):
            s.write_file("a/b.txt", "", new=True)
        with self.assertRaises(Conflict) as digest:
            s.write_file("a/b.txt", "", expected_sha256="0" * 64)
        self.assertEqual(digest.exception.code, "sha256_mismatch")
        self.assertEqual(s.edit_file("a/b.txt", "two", "2").replacements, 1)
        with self.assertRaises(NotFound) as absent:
            s.edit_file("a/b.txt", "three", "3")
        self.assertEqual(absent.exception.code, "edit_target_not_found")
        s.apply_patch("*** Begin Patch\n*** Add File: c\n+new\n*** End Patch\n")
        self.assertEqual(s.grep("^n", "c").lines, ("c:1:new",))
        self.assertEqual(s.glob("**/*.txt").lines, ("a/b.txt",))
        self.assertIn("a/", s.list_dir().lines)
        self.assertEqual(s.stat("a/b.txt").size_bytes, 6)
        self.assertEqual((s.exists("a/b.txt"), s.exists("nonesuch")), (True, False))
        s.mkdir("d/e", parents=True)
        s.move("c", "d/e/c")
        self.assertEqual(s.read_file("d/e/c"), b"new\n")
        s.remove("d", recursive=True)
        with self.assertRaises(NotFound) as gone:
            s.stat("d")
        self.assertEqual(gone.exception.code, "path_not_found")
        with self.assertRaises(Denied) as outside:
            s.write_file(".git/hooks/x", "x")
        self.assertEqual(outside.exception.code, "protected_path")

    def test_a_file_system_that_says_no_is_no_rule(self) -> None:
        tree = self.box.tree("read-only")
        with self.client.open(profile="workspace", mounts=[f"{tree}:/work:ro"], workdir="/work") as s:
            with self.assertRaises(Denied) as denied:
                s.write_file("f", "x")
        e = denied.exception
        assert e.receipt is not None
        self.assertEqual((e.receipt.outcome, e.rule), ("ok", ""))
        self.assertNotIn("policy why", e.hint)

    def test_files_of_any_name_and_size(self) -> None:
        s = self.session()
        name = b"caf\xe9"
        s.write_file(name, b"\xff")
        self.assertEqual(s.read_file(name), b"\xff")
        large = os.urandom(6 << 20)
        s.write_file("large", large)
        self.assertEqual(s.read_file("large"), large)

    def test_shells(self) -> None:
        s = self.session()
        with s.shell(cols=100, rows=30) as shell:
            shell.run("cd /tmp && N=7")
            ran = shell.run("echo $PWD $N; false")
            self.assertEqual((ran.text, ran.exit_code, ran.timed_out), ("/tmp 7\n", 1, False))
            self.assertTrue(shell.run("sleep 100", timeout=0.3).timed_out)
            token = shell.info().token
            shell.type("echo by hand; exit 5\n")
            seen = b"".join(c.bytes or b"" for page in shell.follow(token) for c in page.chunks)
            self.assertIn(b"by hand", seen)
            self.assertEqual(shell.info().exit_code, 5)

    def test_tools(self) -> None:
        s = self.session()
        self.assertIn("apply_patch", [t.name for t in self.client.tools("openai").tools])
        answer = s.call_tool("anthropic", {"type": "tool_use", "id": "toolu_1", "name": "str_replace_based_edit_tool",
                                           "input": {"command": "create", "path": "x", "file_text": "hello\n"}})
        self.assertTrue(answer.ok and answer.receipts)
        self.assertEqual(s.read_file("x"), b"hello\n")
        denied = s.call_tool("gemini", {"functionCall": {"name": "write_file", "args": {"file_path": ".git/hooks/x", "content": "x"}}})
        self.assertFalse(denied.ok)
        with self.assertRaises(Invalid):
            s.call_tool("openai", {"type": "message"})

    def test_blobs(self) -> None:
        path = os.path.join(self.box.dir, "content")
        with open(path, "wb") as f:
            f.write(b"some content")
        with open(path, "rb") as f:
            ref = self.client.put_blob(f).blob_ref
        self.assertEqual(self.client.put_blob(b"some content").blob_ref, ref)
        self.assertEqual(self.client.blob(ref), b"some content")
        with self.assertRaises(Conflict):
            self.client.put_blob(b"other", ref=ref)
        r = self.session().exec(["cat"], stdin=model.BlobRef(ref)).check()
        self.assertEqual(r.stdout, b"some content")

    def test_overlays(self) -> None:
        tree = self.box.tree("overlaid")
        with self.client.open(profile="workspace", mounts=[f"{tree}:/work:overlay"], workdir="/work") as s:
            for i in range(3):
                s.write_file(f"f{i}", "x")
            self.assertEqual([c.path for c in s.diff()], ["f0", "f1", "f2"])
            self.assertEqual(os.listdir(tree), [])
            self.assertEqual(s.commit(["f1"]).applied, 1)
            self.assertEqual(os.listdir(tree), ["f1"])
            s.discard()
            self.assertEqual(list(s.diff()), [])

    def test_a_session_and_what_is_told_of_it(self) -> None:
        s = self.session(labels={"team": "build"}, ttl=600)
        self.assertIn(s.id, [x.session_id for x in self.client.sessions(labels={"team": "build"})])
        self.assertEqual(s.grant.workdir if s.grant else None, "/work")
        s.pause()
        self.assertEqual(s.info().state, "quiesced")
        s.resume()
        with s as same:
            same.exec(["true"])
        self.assertEqual(s.info().state, "closed")
        kinds = [n.kind for n in s.events()]  # it has ended, and so have they
        self.assertEqual(kinds[0], "SESSION_STATE")
        self.assertEqual(len(kinds), s.info().event_seq)
        self.assertEqual([n.kind for n in s.events(after=1)], kinds[1:])
        with self.assertRaises(Conflict):
            s.exec(["true"])
        self.assertIn("host.session.close", [r.op for r in self.client.receipts(session_id=s.id)])

    def test_many_threads(self) -> None:
        s = self.session()
        failed: List[BaseException] = []

        def work(n: int) -> None:
            try:
                for i in range(5):
                    text = f"{n} {i}"
                    if s.exec(["echo", text]).text != text + "\n":
                        raise AssertionError(text)
            except BaseException as e:
                failed.append(e)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(failed, [])

    def test_an_interrupt_cancels(self) -> None:
        s = self.session()
        for seconds in (0.1, 0.7):  # before and after it is known what was started
            main = threading.main_thread().ident
            assert main is not None
            timer = threading.Timer(seconds, signal.pthread_kill, (main, signal.SIGINT))
            timer.start()
            with self.subTest(seconds), self.assertRaises(KeyboardInterrupt):
                s.exec(["sleep", "100"])
            timer.join()
            self.assertEqual(self.client.executions(session_id=s.id)[0].state, "canceled")

    def test_what_is_asked_of_the_supervisor(self) -> None:
        self.assertEqual(self.client.version().api, 1)
        self.assertTrue(self.client.capabilities().layers)
        self.assertTrue(self.client.host().host)
        self.assertTrue(self.client.checkpoint().note)
        self.assertEqual(self.client.approvals(), ())
        self.client.quiescence()
        with self.assertRaises(NotFound):
            self.client.approval("a-unknown")
        with self.assertRaises(NotFound):
            self.client.approve("a-unknown", "sha256:" + "0" * 64)
        decision = self.client.decide(model.Ask("host.session.open", open=model.SessionOpen(model.Target(model.Local()), profile="nonesuch")))
        self.assertFalse(decision.allow)
