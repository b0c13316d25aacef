"""What a caller notices of a supervisor that is killed and started again: nothing, or what the contract names (R118, R255)."""

import asyncio
import os
import random
import threading
import time
import unittest
from pathlib import Path
from typing import Any, Callable, Dict, List

from stockade import AsyncSession, AsyncStockade, Interrupted, Session, Stockade, Unavailable

from . import daemon

#: calls of the agents: a thousand where there is time for it
CALLS = 1000 if os.environ.get("STOCKADE_SOAK") == "1" else 160
KILLS = 3


class Restarts(unittest.TestCase):
    box: daemon.Daemon

    @classmethod
    def setUpClass(cls) -> None:
        daemon.needed()
        cls.box = daemon.Daemon()
        cls.addClassCleanup(cls.end)

    @classmethod
    def end(cls) -> None:
        cls.box.stop()
        daemon.nothing_left(cls.box)

    def tearDown(self) -> None:
        self.box.ensure()

    def session(self) -> Session:
        self.tree = Path(self.box.tree(self.id().rsplit(".", 1)[-1]))
        client = Stockade(self.box.socket, patience=60)
        self.addCleanup(client.close)
        s = client.open(profile="workspace", mounts=[f"{self.tree}:/work:rw"], workdir="/work")
        self.addCleanup(s.__exit__)
        return s

    def killing(self, *after: float) -> threading.Thread:
        """Kills the supervisor after so many seconds each, and starts it again."""

        def kill() -> None:
            for seconds in after:
                time.sleep(seconds)
                self.box.kill()
                self.box.start()

        thread = threading.Thread(target=kill)
        thread.start()
        self.addCleanup(thread.join)
        return thread

    def test_a_command_that_runs(self) -> None:
        s = self.session()
        thread = self.killing(0.3)
        r = s.exec(["sh", "-c", "echo x >>log; sleep 1; echo done"])
        thread.join()
        self.assertEqual((r.text, r.exit_code, s.read_text("log")), ("done\n", 0, "x\n"))

    def test_a_stream(self) -> None:
        s = self.session()
        thread = self.killing(0.3, 0.3)
        out, frames = b"", []
        for event in s.stream(["sh", "-c", "i=0; while [ $i -lt 200 ]; do i=$((i+1)); echo $i; sleep 0.005; done; sleep 0.3"]):
            out += event.bytes or b""
            if event.frame is not None:
                frames.append(event.frame.seq)
        thread.join()
        self.assertEqual(out, b"".join(b"%d\n" % n for n in range(1, 201)))
        self.assertEqual(frames, list(range(1, len(frames) + 1)))

    def test_input_shells_and_events(self) -> None:
        s = self.session()
        with s.start(["cat"], stdin_open=True) as x, s.shell() as shell, s.events() as events:
            x.write("before\n")
            shell.run("N=7")
            first = next(events)
            self.box.kill()
            self.box.start()
            x.write("after\n")
            x.close_stdin()
            self.assertEqual(x.result().text, "before\nafter\n")
            self.assertEqual(shell.run("echo $N").text, "7\n")
            self.assertEqual((first.seq, next(events).seq), (1, 2))

    def test_a_call_of_a_tool_that_nobody_answered(self) -> None:
        s = self.session()
        thread = self.killing(0.3)
        with self.assertRaises(Interrupted) as e:
            s.call_tool("gemini", {"functionCall": {"name": "run_shell_command", "args": {"command": "sleep 1"}}})
        thread.join()
        self.assertEqual((e.exception.code, e.exception.receipt), ("unanswered", None))

    def test_nobody_comes_back(self) -> None:
        with Stockade(self.box.socket, patience=0.5) as client:
            client.version()
            self.box.kill()
            begun = time.monotonic()
            with self.assertRaises(Unavailable):
                client.version()
            self.assertLess(time.monotonic() - begun, 10)

    def test_an_agent(self) -> None:
        """Small calls, with kills in between; each has its effect once, and what is raised is named by the contract."""
        s = self.session()
        agent = Agent(self.tree, range(CALLS))
        interrupted = 0
        with Killer(self.box, CALLS) as killer:
            for n in range(CALLS):
                killer.at(n)
                while not agent.did(n):
                    try:
                        agent.steps[n % len(agent.steps)](s, n)
                        break
                    except Interrupted as e:
                        interrupted += 1
                        self.assertIn(e.code, ("supervisor_restarted", "lost"))
        agent.verify(self)
        self.assertEqual(killer.kills, KILLS)
        self.assertLessEqual(interrupted, KILLS)

    def test_an_agent_that_awaits(self) -> None:
        tree = Path(self.box.tree("awaits"))

        async def work(s: AsyncSession, agent: Agent, killer: Killer, turn: int, turns: int) -> int:
            interrupted = 0
            for n in range(turn, CALLS, turns):
                killer.at(n)
                while not agent.did(n):
                    try:
                        step = agent.awaited[n % len(agent.awaited)]
                        await step(s, n)
                        break
                    except Interrupted:
                        interrupted += 1
            return interrupted

        async def main() -> None:
            async with AsyncStockade(self.box.socket, patience=60) as client:
                async with await client.open(profile="workspace", mounts=[f"{tree}:/work:rw"], workdir="/work") as s:
                    agent = Agent(tree, range(CALLS))
                    with Killer(self.box, CALLS) as killer:
                        interrupted = await asyncio.gather(*(work(s, agent, killer, turn, 4) for turn in range(4)))
                    agent.verify(self)
                    self.assertLessEqual(sum(interrupted), KILLS * 4)

        asyncio.run(main())


class Killer:
    """Kills a supervisor so many times in the course of so many calls, in the middle of whatever is under way."""

    def __init__(self, box: daemon.Daemon, calls: int) -> None:
        self.box, self.kills = box, 0
        self.moments = {calls * (k + 1) // (KILLS + 1) for k in range(KILLS)}
        self.threads: List[threading.Thread] = []
        self.failed: List[BaseException] = []

    def __enter__(self) -> "Killer":
        return self

    def __exit__(self, *failure: Any) -> None:
        for thread in self.threads:
            thread.join()
        if self.failed:
            raise self.failed[0]

    def at(self, n: int) -> None:
        if n in self.moments:
            thread = threading.Thread(target=self.kill)
            thread.start()
            self.threads.append(thread)

    def kill(self) -> None:
        try:
            time.sleep(random.random() * 0.02)
            self.box.kill()
            self.box.start()
            self.kills += 1
        except BaseException as e:
            self.failed.append(e)


class Agent:
    """Calls whose effects can be counted afterwards. A call that was interrupted is looked for before it is made again."""

    def __init__(self, tree: Path, calls: range) -> None:
        self.tree, self.calls = tree, calls
        self.log = tree / "log"
        self.log.touch()
        self.steps: List[Callable[[Session, int], None]] = [self.append, self.create, self.exec, self.patch]
        self.awaited: List[Callable[[AsyncSession, int], Any]] = [self.append_async, self.create_async, self.exec_async, self.patch_async]

    def did(self, n: int) -> bool:
        """Whether a call has had its effect."""
        if n % 4 == 0 or n % 4 == 2:
            return f"{n}\n" in self.log.read_text().splitlines(keepends=True)
        return (self.tree / f"f{n}").exists()

    def append(self, s: Session, n: int) -> None:
        assert s.exec(["sh", "-c", f"echo {n} >>log"]).exit_code == 0

    def create(self, s: Session, n: int) -> None:
        assert s.write_file(f"f{n}", f"{n}\n", new=True).created
        assert s.read_text(f"f{n}") == f"{n}\n"

    def exec(self, s: Session, n: int) -> None:
        assert s.exec(["sh", "-c", "cat >>log; echo $N"], stdin=f"{n}\n", env={"N": str(n)}).text == f"{n}\n"

    def patch(self, s: Session, n: int) -> None:
        assert s.apply_patch(f"*** Begin Patch\n*** Add File: f{n}\n+{n}\n*** End Patch\n").files_changed == 1
        assert s.exists(f"f{n}") and not s.exists(f"g{n}")

    async def append_async(self, s: AsyncSession, n: int) -> None:
        assert (await s.exec(["sh", "-c", f"echo {n} >>log"])).exit_code == 0

    async def create_async(self, s: AsyncSession, n: int) -> None:
        assert (await s.write_file(f"f{n}", f"{n}\n", new=True)).created
        assert await s.read_text(f"f{n}") == f"{n}\n"

    async def exec_async(self, s: AsyncSession, n: int) -> None:
        assert (await s.exec(["sh", "-c", "cat >>log; echo $N"], stdin=f"{n}\n", env={"N": str(n)})).text == f"{n}\n"

    async def patch_async(self, s: AsyncSession, n: int) -> None:
        assert (await s.apply_patch(f"*** Begin Patch\n*** Add File: f{n}\n+{n}\n*** End Patch\n")).files_changed == 1
        assert await s.exists(f"f{n}") and not await s.exists(f"g{n}")

    def verify(self, test: unittest.TestCase) -> None:
        """Nothing is lost, and nothing is there twice."""
        appended = sorted(int(line) for line in self.log.read_text().splitlines())
        test.assertEqual(appended, [n for n in self.calls if n % 2 == 0])
        files: Dict[str, str] = {p.name: p.read_text() for p in self.tree.iterdir() if p.name.startswith("f")}
        test.assertEqual(files, {f"f{n}": f"{n}\n" for n in self.calls if n % 2 == 1})
