"""The client that awaits, against a real supervisor: what differs from the one that blocks, and that it is the same."""

import asyncio
import inspect
import time
import unittest
from typing import Any, Awaitable, Callable

import stockade
from stockade import AsyncSession, AsyncStockade, Denied, NotFound, Result

from . import daemon


class Client(unittest.TestCase):
    def within(self, work: Callable[[AsyncStockade, AsyncSession], Awaitable[Any]]) -> None:
        """Does work in a session of its own."""
        box = daemon.shared()
        tree = box.tree("aio-" + self.id().rsplit(".", 1)[-1])

        async def main() -> None:
            async with AsyncStockade(box.socket) as client:
                async with await client.open(profile="workspace", mounts=[f"{tree}:/work:rw"], workdir="/work") as s:
                    await work(client, s)
                self.assertEqual((await s.info()).state, "closed")

        asyncio.run(main())

    def test_the_same_methods(self) -> None:
        for one, other in ((stockade.Stockade, AsyncStockade), (stockade.Session, AsyncSession), (stockade.Execution, stockade.AsyncExecution),
                           (stockade.Shell, stockade.AsyncShell)):
            for name, method in inspect.getmembers(other, inspect.isfunction):
                if not name.startswith("_") and name != "aclose":
                    self.assertEqual(str(inspect.signature(method)).replace("Async", ""), str(inspect.signature(getattr(one, name))), name)

    def test_commands_at_the_same_time(self) -> None:
        async def work(client: AsyncStockade, s: AsyncSession) -> None:
            results = await asyncio.gather(*(s.exec(["sh", "-c", f"cat; exit {n}"], stdin=str(n)) for n in range(6)))
            self.assertEqual([(r.text, r.exit_code) for r in results], [(str(n), n) for n in range(6)])
            big = await s.exec(["head", "-c", "2000001", "/dev/zero"])
            self.assertEqual(len(big.stdout), 2000001)

        self.within(work)

    def test_streams_input_files_and_shells(self) -> None:
        async def work(client: AsyncStockade, s: AsyncSession) -> None:
            out = b""
            async for event in s.stream(["sh", "-c", "echo a; sleep 0.1; echo b"]):
                out += event.bytes or b""
            self.assertEqual(out, b"a\nb\n")
            async with await s.start(["cat"], stdin_open=True) as x:
                await x.write(b"typed\n")
                await x.close_stdin()
                self.assertEqual((await x.result()).text, "typed\n")
            await s.write_file("f", "one\n")
            self.assertEqual((await s.read_text("f"), (await s.grep("one")).lines), ("one\n", ("f:1:one",)))
            with self.assertRaises(NotFound):
                await s.read_file("nonesuch")
            async with await s.shell() as shell:
                self.assertEqual((await shell.run("N=7; echo $N")).text, "7\n")
            async with s.events() as notices:
                async for notice in notices:
                    self.assertEqual((notice.seq, notice.kind), (1, "SESSION_STATE"))
                    break
            answer = await s.call_tool("openai", {"type": "function_call", "call_id": "c", "name": "read_file", "arguments": '{"file_path":"f"}'})
            self.assertTrue(answer.ok, answer)
            with self.assertRaises(Denied):
                await client.open(profile="workspace", mounts=["/etc:/work:rw"])

        self.within(work)

    def test_what_is_canceled_is_canceled(self) -> None:
        async def work(client: AsyncStockade, s: AsyncSession) -> None:
            for seconds, twice in ((0.0, False), (0.7, False), (0.1, True)):
                with self.subTest(seconds, twice=twice):
                    task: "asyncio.Task[Result]" = asyncio.ensure_future(s.exec(["sleep", "100"]))
                    await asyncio.sleep(seconds)
                    task.cancel()
                    if twice:
                        await asyncio.sleep(0.05)
                        task.cancel()
                    with self.assertRaises(asyncio.CancelledError):
                        await task
                    until = time.monotonic() + 10
                    while await client.executions(session_id=s.id, active=True):
                        self.assertLess(time.monotonic(), until)
                        await asyncio.sleep(0.02)
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(s.exec(["sleep", "100"]), 0.2)
            self.assertEqual((await s.exec(["echo", "fine"])).text, "fine\n")

        self.within(work)

    def test_what_is_opened_for_nobody_is_closed(self) -> None:
        async def work(client: AsyncStockade, s: AsyncSession) -> None:
            for turn in range(8):
                for call in (client.open(profile="workspace", labels={"of": "nobody"}), s.shell()):
                    task = asyncio.ensure_future(awaited(call))
                    await asyncio.sleep(turn * 0.01)
                    task.cancel()
                    try:
                        opened = await task
                    except asyncio.CancelledError:
                        continue
                    async with opened:
                        pass
            until = time.monotonic() + 30
            while await client.executions(session_id=s.id, active=True) or [o for o in await client.sessions(labels={"of": "nobody"}) if o.state != "closed"]:
                self.assertLess(time.monotonic(), until)
                await asyncio.sleep(0.02)

        async def awaited(call: Awaitable[Any]) -> Any:
            return await call

        self.within(work)

    def test_leaving_a_stream_leaves_nothing(self) -> None:
        async def work(client: AsyncStockade, s: AsyncSession) -> None:
            async with await s.start(["sh", "-c", "while :; do echo x; sleep 0.01; done"]) as x:
                async with x.events() as events:
                    async for event in events:
                        if event.bytes:
                            break
            self.assertEqual((await x.info()).state, "canceled")

        self.within(work)
