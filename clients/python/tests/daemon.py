"""A supervisor of the tests' own, in a directory of its own: the real one, with its runner."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path
from typing import List, Optional

BIN = os.environ.get("STOCKADE_BIN", "")

_WITHIN = 30.0  # seconds for a start or a stop
_SETTLE = 5.0  # and for what goes on behind it


def needed() -> None:
    """Skips a test that needs what is not there; where nothing may be skipped, it fails."""
    reason = "" if BIN else "STOCKADE_BIN names no commands: make build makes them"
    if not reason and os.geteuid() != 0:
        reason = "needs root: the runner builds namespaces, mounts and cgroups"
    if reason and os.environ.get("STOCKADE_NOSKIP") == "1":
        raise AssertionError("not skipped: " + reason)
    if reason:
        raise unittest.SkipTest(reason)


class Daemon:
    """A supervisor that can be killed, and started again on the same directory. The caller stops it."""

    def __init__(self, *args: str) -> None:
        self.dir = tempfile.mkdtemp(prefix="stockade-py-")
        os.chmod(self.dir, 0o755)
        self.socket = os.path.join(self.dir, "sock")
        self.state = os.path.join(self.dir, "state")
        self._args = list(args)
        self._log = open(os.path.join(self.dir, "log"), "a+b")
        self._process: Optional["subprocess.Popen[bytes]"] = None
        try:
            self.start()
        except BaseException:
            self.stop()
            raise

    def start(self) -> None:
        """Starts it, and returns once it serves."""
        self._process = subprocess.Popen(
            [os.path.join(BIN, "stockaded"), "--state", self.state, "--socket", self.socket, *self._args],
            env={"PATH": os.environ["PATH"]}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._log)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line != b"ready\n":
            raise AssertionError(f"stockaded did not become ready: {self._process.wait(_WITHIN)}\n{self.log()}")

    def kill(self) -> None:
        """Kills it, as a crash would. Its runner keeps what it holds for the next one."""
        process = self._process
        if process is not None:
            process.kill()
            process.wait(_WITHIN)
            if process.stdout is not None:
                process.stdout.close()
        self._process = None

    def ensure(self) -> None:
        """Starts it, if it was killed."""
        if self._process is None:
            self.start()

    def stop(self) -> None:
        """Stops it in order, and takes its directory away."""
        try:
            if self._process is not None:
                process, self._process = self._process, None
                process.terminate()
                process.wait(_WITHIN)
                if process.stdout is not None:
                    process.stdout.close()
        finally:
            self._log.close()
            shutil.rmtree(self.dir, ignore_errors=True)

    def tree(self, name: str) -> str:
        """A new directory, for a mount."""
        path = os.path.join(self.dir, name)
        os.makedirs(path)
        return path

    def log(self) -> str:
        self._log.flush()
        return Path(self._log.name).read_text("utf-8", "replace")[-4000:]

    def left(self) -> List[str]:
        """Processes and control groups of this supervisor's that there still are: its name is made of its state directory."""
        name = hashlib.sha256(self.state.encode()).hexdigest()[:12]
        found = []
        for line in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = line.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            except OSError:
                continue
            if name in words or self.state in words:
                found.append(words)
        for parent, groups, _ in os.walk("/sys/fs/cgroup"):  # of which others' come and go meanwhile
            found += [os.path.join(parent, g) for g in groups if g == f"stockade-{name}"]
        return found


_shared: Optional[Daemon] = None


def shared() -> Daemon:
    """The supervisor of all tests that do not kill it."""
    global _shared
    needed()
    if _shared is None:
        _shared = Daemon()
    return _shared


def stop_shared() -> None:
    """Stops it, and looks at what then remains."""
    global _shared
    daemon, _shared = _shared, None
    if daemon is not None:
        daemon.stop()
        nothing_left(daemon)


def nothing_left(daemon: Daemon) -> None:
    """Fails when something remains of a supervisor that was stopped."""
    until = time.monotonic() + _SETTLE
    while daemon.left() and time.monotonic() < until:
        time.sleep(0.05)
    left = daemon.left()
    if left:
        raise AssertionError(f"left behind: {left}")
