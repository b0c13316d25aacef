"""Runs the suite: python3 -m tests [NAME…]. STOCKADE_BIN names the commands."""

import sys
import unittest
from pathlib import Path

from . import daemon

HERE = Path(__file__).resolve().parent


def main() -> int:
    names = sys.argv[1:]
    loader = unittest.defaultTestLoader
    suite = loader.loadTestsFromNames([f"tests.{n}" for n in names]) if names else loader.discover(str(HERE), top_level_dir=str(HERE.parent))
    result = unittest.TextTestRunner(verbosity=2, warnings="error").run(suite)
    daemon.stop_shared()
    print(f"ran {result.testsRun}, skipped {len(result.skipped)}")
    return 0 if result.wasSuccessful() else 1


sys.exit(main())
