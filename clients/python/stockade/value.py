"""What callers say, as what the contract says: seconds, mounts, environments, input. And what they are given."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Mapping, Optional, Sequence, Tuple, Union

from .codec import EnvValue, Secret, text_of
from .failure import CommandFailed, ProtocolError, meaning
from .model import (BlobRef, ExecResult, InlineBytes, InlineText, Mount, Output, Receipt, ShellResult, Stdin, ToolContent,
                    ToolOutput)

#: seconds, or a timedelta
Duration = Union[int, float, timedelta]

#: HOST:GUEST[:MODE], or the mount itself
MountLike = Union[str, Mount]

#: bytes of content that travel in a request; what is more is stored first, or sent in parts. Policy judges a request of up
#: to 1 MiB as JSON, in which a byte can become six
INLINE = 128 << 10

#: text, bytes, a blob that was stored, or a secret text, which reaches the process and no record
Content = Union[str, bytes, BlobRef, Secret]

Path = Union[str, bytes, "os.PathLike[str]"]


def nanoseconds(duration: Optional[Duration]) -> Optional[int]:
    """A duration as the contract has it. What is not zero does not become so."""
    if duration is None:
        return None
    if isinstance(duration, timedelta):
        return (duration.days * 86400 + duration.seconds) * 10**9 + duration.microseconds * 1000
    ns = duration * 10**9 if isinstance(duration, int) else round(duration * 1e9)
    return ns if ns or not duration else 1


def milliseconds(duration: Duration) -> int:
    ns = nanoseconds(duration) or 0
    return -(-ns // 10**6)


def mount_of(mount: MountLike) -> Mount:
    """A mount, of which the host path is made absolute: what is relative is so to the caller. The mode is ro unless said."""
    if isinstance(mount, str):
        host, _, rest = mount.partition(":")
        guest, _, mode = rest.partition(":")
        if not host or not guest:
            raise ValueError(f"{mount!r} is not HOST:GUEST[:MODE]")
        mount = Mount(host, guest, mode or "ro")
    return Mount(os.path.abspath(mount.host_path), mount.guest_path, mount.mode, mount.bytes, mount.inodes)


def mapping(values: Optional[Mapping[str, EnvValue]]) -> Optional[Mapping[str, EnvValue]]:
    """An environment; one without members is left out."""
    return dict(values) if values else None


def several(values: Optional[Sequence[str]]) -> Optional[Tuple[str, ...]]:
    """A list; one without members is left out. A text is not a list of its letters."""
    if isinstance(values, (str, bytes)):
        raise TypeError("a list of texts is expected, not a text")
    return tuple(values) if values else None


def raw(text: Union[str, bytes]) -> bytes:
    """Text as UTF-8, and bytes as they are."""
    return text.encode("utf-8") if isinstance(text, str) else bytes(text)


def portion(data: bytes, start: int, text: bool) -> Tuple[Stdin, int]:
    """What of some input travels in one request, from a place on, and the place behind it. What was text is said as such
    where it is: the command may have read up to the middle of a letter."""
    end = min(start + INLINE, len(data))
    while text and end < len(data) and data[end] & 0xC0 == 0x80:  # within a letter
        end -= 1
    said = text_of(data[start:end]) if text else None
    return Stdin(inline_bytes=InlineBytes(data[start:end])) if said is None else Stdin(inline_text=InlineText(said)), end


def stdin_of(content: Optional[Content]) -> Optional[Stdin]:
    if content is None:
        return None
    if isinstance(content, Secret):
        return Stdin(secret_text=InlineText(content.secret))
    if isinstance(content, BlobRef):
        return Stdin(blob_ref=content)
    if isinstance(content, str):
        return Stdin(inline_text=InlineText(content))
    return Stdin(inline_bytes=InlineBytes(bytes(content)))


def content_of(content: Content) -> ToolContent:
    if isinstance(content, Secret):
        return ToolContent(secret_text=InlineText(content.secret))
    if isinstance(content, BlobRef):
        return ToolContent(blob_ref=content)
    if isinstance(content, str):
        return ToolContent(inline_text=InlineText(content))
    return ToolContent(inline_bytes=InlineBytes(bytes(content)))


def path_of(path: Path) -> Tuple[Optional[str], Optional[bytes]]:
    """A path as its text, or as its bytes where that is not UTF-8."""
    name = os.fsencode(path) if not isinstance(path, bytes) else path
    try:
        return name.decode("utf-8"), None
    except UnicodeDecodeError:
        return None, name


def inline(output: Union[Output, ToolOutput, None]) -> Tuple[bytes, str]:
    """The bytes of an output, or the blob in which they are."""
    if output is None:
        return b"", ""
    if output.inline_text is not None:
        return output.inline_text.text.encode("utf-8"), ""
    if output.inline_bytes is not None:
        return output.inline_bytes.bytes, ""
    if output.blob is not None:
        return b"", output.blob.blob_ref
    return b"", ""


def signal_of(signal: Union[str, int]) -> Union[str, int]:
    return int(signal) if isinstance(signal, int) else signal


@dataclass(frozen=True)
class Result:
    """How a command ended. That it ended badly is a result; that it was refused is an exception instead."""

    exec_id: str
    #: as the receipt has it
    exit_code: int
    #: ok, timeout, signaled, or what else the receipt says
    status: str
    #: all that was kept, as it was written
    stdout: bytes
    stderr: bytes
    receipt: Receipt = field(repr=False)

    @property
    def intent_id(self) -> str:
        return self.receipt.intent_id

    @property
    def ok(self) -> bool:
        """It ended by itself, with 0."""
        return self.status == "ok" and self.exit_code == 0

    @property
    def text(self) -> str:
        """stdout as text; what is no UTF-8 is replaced."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def details(self) -> ExecResult:
        """All that the receipt says of it: usage, ceilings that were reached, what the sandbox refused."""
        return executed(self.receipt)

    def check(self) -> Result:
        """The result itself, or CommandFailed."""
        if self.ok:
            return self
        said = self.stderr[-2000:].decode("utf-8", "replace").strip() or meaning(self.details.error_code or "")
        how = f"exit code {self.exit_code}" if self.status == "ok" else self.status
        failed = CommandFailed(self.details.error_code or "command_failed", f"{how}: {said}" if said else how, self.receipt)
        failed.result = self
        raise failed


@dataclass(frozen=True)
class Ran:
    """How one command in a shell ended. exit_code is None where the shell did not say."""

    exit_code: Optional[int]
    output: bytes
    timed_out: bool
    receipt: Receipt = field(repr=False)

    @property
    def text(self) -> str:
        return self.output.decode("utf-8", "replace")


@dataclass(frozen=True)
class Found:
    """What a search or a list found, line by line. truncated says that there is more."""

    lines: Tuple[str, ...]
    truncated: bool
    receipt: Receipt = field(repr=False)


def executed(receipt: Receipt) -> ExecResult:
    if receipt.payload is None or receipt.payload.exec is None:
        raise ProtocolError("protocol_error", "the receipt has no result of a command", receipt)
    return receipt.payload.exec


def typed_at(receipt: Receipt) -> ShellResult:
    if receipt.payload is None or receipt.payload.shell is None:
        raise ProtocolError("protocol_error", "the receipt has no result of a shell", receipt)
    return receipt.payload.shell
