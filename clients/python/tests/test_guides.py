"""The examples of the guides, run as they stand there: in order, and printing what the guide says."""

import contextlib
import io
import os
import re
import unittest
from pathlib import Path
from typing import Any, Dict

from . import daemon

ROOT = Path(__file__).resolve().parents[1]
GUIDES = [ROOT / "README.md", ROOT.parents[1] / "docs" / "agents.md"]


def pattern(text: str) -> str:
    """What an example prints; … stands for what differs."""
    return ".*".join(re.escape(part) for part in text.split("…"))


class Guides(unittest.TestCase):
    def test_examples(self) -> None:
        box = daemon.shared()
        before = dict(os.environ)
        os.environ["STOCKADE_SOCKET"] = box.socket
        self.addCleanup(os.environ.update, before)
        for guide in GUIDES:
            if not guide.exists():
                continue
            place = box.tree("guide-" + guide.stem)
            os.mkdir(os.path.join(place, "repo"))
            here = os.getcwd()
            os.chdir(place)
            self.addCleanup(os.chdir, here)
            names: Dict[str, Any] = {"__name__": "guide"}
            blocks = re.findall(r"^```python\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", guide.read_text("utf-8"), re.MULTILINE | re.DOTALL)
            self.assertGreater(len(blocks), 3)
            for code, printed in blocks:
                with self.subTest(guide.name, code=code):
                    out = io.StringIO()
                    with contextlib.redirect_stdout(out):
                        exec(compile(code, guide.name, "exec"), names)
                    self.assertRegex(out.getvalue(), "(?s)^" + pattern(printed) + "$")
