"""What is decoded has its type, and what is encoded fits the contract."""

import ast
import dataclasses
import subprocess
import sys
import unittest
from pathlib import Path
from typing import Any, Dict, List, Type

from stockade import Secret, codec, model
from stockade.codec import DecodeError, SecretDigest


class Codec(unittest.TestCase):
    def test_every_type_can_be_read(self) -> None:
        kinds: List[Type[Any]] = [k for k in vars(model).values() if isinstance(k, type) and dataclasses.is_dataclass(k) and k.__module__ == "stockade.model"]
        self.assertGreater(len(kinds), 150)
        for kind in kinds:
            with self.subTest(kind):
                required = [f for f in dataclasses.fields(kind) if f.default is dataclasses.MISSING]
                if required:
                    with self.assertRaisesRegex(DecodeError, "missing"):
                        codec.decode(kind, b"{}")
                else:
                    self.assertEqual(codec.encode(codec.decode(kind, b"{}")), b"{}")

    def test_integers_are_exact(self) -> None:
        for n in (0, -1, 2**53 + 1, 2**63 - 1, -(2**63)):
            usage = codec.decode(model.Usage, b'{"cpu_ns":%d}' % n)
            self.assertEqual((usage.cpu_ns, codec.encode(usage)), (n, b'{"cpu_ns":%d}' % n))
        for bad in (b"1.0", b"1e3", b'"1"', b"true", b"null", b"[1]"):
            with self.subTest(bad), self.assertRaises(DecodeError):
                codec.decode(model.Usage, b'{"cpu_ns":' + bad + b"}")
        with self.assertRaises(ValueError):
            codec.encode(model.Usage(cpu_ns=2**64))

    def test_bytes_are_bytes(self) -> None:
        for raw in (b"", b"\x00\xff\xfe", "é".encode("latin-1")):
            there = codec.decode(model.InlineBytes, codec.encode(model.InlineBytes(raw)))
            self.assertEqual(there.bytes, raw)
        for bad in (b'"YQ"', b'"!!!!"', '"é"'.encode(), b"1"):
            with self.subTest(bad), self.assertRaises(DecodeError):
                codec.decode(model.InlineBytes, b'{"bytes":' + bad + b"}")

    def test_documents(self) -> None:
        for bad in (b"", b"{", b"[]", b"null", b'{"text":"a","text":"b"}', b'{"text":"a"} x', b"\xff", b"[" * 100000):
            with self.subTest(bad[:20]), self.assertRaises(DecodeError):
                codec.decode(model.InlineText, bad)
        newer = b'{"text":"a","later":1}'
        self.assertEqual(codec.decode(model.InlineText, newer).text, "a")
        with self.assertRaisesRegex(DecodeError, "/later"):
            codec.decode(model.InlineText, newer, strict=True)

    def test_an_environment_has_secrets_and_says_nothing_of_them(self) -> None:
        patch: Dict[str, Any] = {"A": "text", "B": Secret("hunter2"), "C": None, "D": SecretDigest("hmac-sha256:00")}
        exec_ = model.Exec("s-1", ("true",), env_patch=patch)
        self.assertNotIn("hunter2", repr(exec_))
        self.assertEqual(codec.decode(model.Exec, codec.encode(exec_), strict=True), exec_)

    def test_text_is_text(self) -> None:
        with self.assertRaises(ValueError):
            codec.encode(model.InlineText("\udcff"))
        with self.assertRaises(TypeError):
            codec.encode(model.InlineText(object()))  # type: ignore[arg-type]

    def test_the_oldest_python_can_read_it(self) -> None:
        for path in sorted((Path(__file__).resolve().parent.parent).rglob("*.py")):
            ast.parse(path.read_text("utf-8"), path.name, feature_version=(3, 9))

    def test_what_is_made_is_as_it_would_be_made(self) -> None:
        root = Path(__file__).resolve().parent.parent
        if not (root / "../../docs/api/openapi.json").exists():
            self.skipTest("the documents of the contract are not beside the package")
        done = subprocess.run([sys.executable, str(root / "generate.py"), "--check"], stdout=subprocess.PIPE)
        self.assertEqual((done.returncode, done.stdout), (0, b""))
