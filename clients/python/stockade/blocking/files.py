# Made by generate.py from aio/files.py, which is the one to read and to change.
"""The file tools of a session. What a tool says no to is an exception, by its code."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Type

from ..codec import Secret
from ..failure import Conflict, Denied, NotFound, StockadeError, class_of
from ..model import (BlobRef, FileEdit, FileGlob, FileGrep, FileList, FileMkdir, FileMove, FilePatch, FileRead, FileRemove, FileStat, FileWrite,
                     Receipt, ToolChangeResult, ToolEditResult, ToolPatchResult, ToolReadResult, ToolStatResult, ToolWriteResult, ToolPatchText, InlineText)
from ..request import named, upload
from ..value import INLINE, Content, Found, Path, content_of, inline, path_of, raw
from .exchange import Exchange, shaped
from .execution import fetch


class Files:
    """Files as commands of the session see them. A relative path begins in its working directory."""

    def __init__(self, exchange: Exchange, session_id: str) -> None:
        self._exchange = exchange
        #: of the session
        self.id = session_id

    def read_file(self, path: Path) -> bytes:
        """The whole content of a file. One that changes meanwhile is a Conflict."""
        name, raw = path_of(path)
        parts: List[bytes] = []
        offset, before = 0, (0, 0)
        while True:
            ask = FileRead(self.id, path=name, path_bytes=raw, encoding="bytes", offset_bytes=offset or None)
            receipt, read = self._tool("host.fs.read_file", ask, "read")
            assert isinstance(read, ToolReadResult)
            this = (read.size_bytes or 0, read.mtime_ns or 0)
            if parts and this != before:
                raise Conflict("changed_meanwhile", f"{name or raw!r} was changed while it was read", receipt)
            part, before = self._content(read.content), this
            parts.append(part)
            offset += len(part)
            if not read.truncated or not part:
                return b"".join(parts)

    def read_text(self, path: Path, first_line: Optional[int] = None, lines: Optional[int] = None) -> str:
        """A file that is UTF-8, or so many lines of it from one on."""
        if first_line is None and lines is None:
            return (self.read_file(path)).decode("utf-8")
        name, raw = path_of(path)
        _, read = self._tool("host.fs.read_file", FileRead(self.id, path=name, path_bytes=raw, start_line=first_line, max_lines=lines), "read")
        assert isinstance(read, ToolReadResult)
        return (self._content(read.content)).decode("utf-8")

    def write_file(self, path: Path, content: Content, *, parents: bool = False, new: bool = False, expected_sha256: Optional[str] = None,
                         executable: Optional[bool] = None, key: Optional[str] = None) -> ToolWriteResult:
        """Gives a file its content, whole. new: only if there is none; expected_sha256: only in the place of that."""
        name, raw = path_of(path)
        content = self._portable(content)
        ask = FileWrite(self.id, content_of(content), path=name, path_bytes=raw, create_parents=parents or None, mode="create_new" if new else None,
                        expected_sha256=expected_sha256, executable=executable)
        _, wrote = self._tool("host.fs.write_file", ask, "write", key)
        assert isinstance(wrote, ToolWriteResult)
        return wrote

    def edit_file(self, path: Path, old: str, new: str, *, replace_all: bool = False, exact: bool = False, expected_sha256: Optional[str] = None,
                        key: Optional[str] = None) -> ToolEditResult:
        """Replaces a text that is there once, or with replace_all everywhere."""
        name, raw = path_of(path)
        ask = FileEdit(self.id, old, new, path=name, path_bytes=raw, replace_all=replace_all or None, exact_only=exact or None, expected_sha256=expected_sha256)
        _, edited = self._tool("host.fs.edit_file", ask, "edit", key)
        assert isinstance(edited, ToolEditResult)
        return edited

    def apply_patch(self, patch: str, *, format: Optional[str] = None, dry_run: bool = False, key: Optional[str] = None) -> ToolPatchResult:
        """Applies a patch, v4a or unified, to all of its files or to none."""
        ask = FilePatch(self.id, ToolPatchText(inline_text=InlineText(patch)), patch_format=format, dry_run=dry_run or None)
        _, patched = self._tool("host.fs.apply_patch", ask, "patch", key)
        assert isinstance(patched, ToolPatchResult)
        return patched

    def grep(self, pattern: str, path: Optional[Path] = None, *, glob: Optional[str] = None, fixed: bool = False, ignore_case: bool = False,
                   multiline: bool = False, before: Optional[int] = None, after: Optional[int] = None, limit: Optional[int] = None) -> Found:
        """The lines that a regular expression matches, each as PATH:LINE:TEXT."""
        name, raw = path_of(path) if path is not None else (None, None)
        ask = FileGrep(self.id, pattern, path=name, path_bytes=raw, glob_filter=glob, fixed_strings=fixed or None, case_insensitive=ignore_case or None,
                       multiline=multiline or None, before=before, after=after, max_results=limit)
        receipt, found = self._tool("host.fs.grep", ask, "grep")
        return self._found(receipt, found.matches, found.truncated)

    def glob(self, pattern: str, path: Optional[Path] = None, *, limit: Optional[int] = None) -> Found:
        """The files whose paths a pattern matches, newest first."""
        name, raw = path_of(path) if path is not None else (None, None)
        receipt, found = self._tool("host.fs.glob", FileGlob(self.id, pattern, path=name, path_bytes=raw, max_results=limit), "glob")
        return self._found(receipt, found.paths, found.truncated)

    def list_dir(self, path: Path = ".", *, limit: Optional[int] = None) -> Found:
        """The names in a directory; those of directories end in a slash."""
        name, raw = path_of(path)
        receipt, found = self._tool("host.fs.list_dir", FileList(self.id, path=name, path_bytes=raw, max_results=limit), "list")
        return self._found(receipt, found.entries, found.truncated)

    def stat(self, path: Path, *, link: bool = False) -> ToolStatResult:
        """What is at a path; with link, a link itself and not what it leads to."""
        name, raw = path_of(path)
        _, stat = self._tool("host.fs.stat", FileStat(self.id, path=name, path_bytes=raw, link=link or None), "stat")
        assert isinstance(stat, ToolStatResult)
        return stat

    def exists(self, path: Path, *, link: bool = False) -> bool:
        """Whether there is anything at a path."""
        name, raw = path_of(path)
        _, stat = self._tool("host.fs.exists", FileStat(self.id, path=name, path_bytes=raw, link=link or None), "stat")
        assert isinstance(stat, ToolStatResult)
        return bool(stat.exists)

    def mkdir(self, path: Path, *, parents: bool = False, key: Optional[str] = None) -> ToolChangeResult:
        name, raw = path_of(path)
        return self._change("host.fs.mkdir", FileMkdir(self.id, path=name, path_bytes=raw, create_parents=parents or None), key)

    def move(self, path: Path, to: Path, *, overwrite: bool = False, key: Optional[str] = None) -> ToolChangeResult:
        """Renames a file, a directory or a link."""
        (name, raw), (target, target_raw) = path_of(path), path_of(to)
        ask = FileMove(self.id, path=name, path_bytes=raw, to=target, to_bytes=target_raw, overwrite=overwrite or None)
        return self._change("host.fs.move", ask, key)

    def remove(self, path: Path, *, recursive: bool = False, key: Optional[str] = None) -> ToolChangeResult:
        name, raw = path_of(path)
        return self._change("host.fs.remove", FileRemove(self.id, path=name, path_bytes=raw, recursive=recursive or None), key)

    def _change(self, op: str, ask: Any, key: Optional[str]) -> ToolChangeResult:
        _, changed = self._tool(op, ask, "change", key)
        assert isinstance(changed, ToolChangeResult)
        return changed

    def _tool(self, op: str, ask: Any, arm: str, key: Optional[str] = None) -> Tuple[Receipt, Any]:
        """What a tool answered, when it is not no."""
        receipt = self._exchange.receipt(named(op, ask, key), op, own_key=key is not None)
        result: Any = shaped(getattr(shaped(shaped(receipt.payload, "payload").file, "result"), arm), "result")
        if result.status != "ok":
            raise refused(result, receipt)
        return receipt, result

    def _portable(self, content: Content) -> Content:
        """Content as a request can carry it: what is larger is stored first."""
        if isinstance(content, (BlobRef, Secret)) or len(data := raw(content)) <= INLINE:
            return content
        receipt = self._exchange.receipt(upload(data, len(data), None, None), "blob.put")
        return BlobRef(shaped(shaped(receipt.payload, "payload").blob, "blob").blob_ref)

    def _content(self, content: Any) -> bytes:
        data, ref = inline(content)
        return fetch(self._exchange, ref) if ref else data

    def _found(self, receipt: Receipt, output: Any, truncated: Optional[bool]) -> Found:
        text = (self._content(output)).decode("utf-8", "replace")
        return Found(tuple(text.split("\n")[:-1] if text.endswith("\n") else text.split("\n")) if text else (), bool(truncated), receipt)


#: the statuses that say more than a code does; what is forbidden is so by the grant, a mount or the file system
_KINDS: Dict[str, Type[StockadeError]] = {"forbidden": Denied, "not_found": NotFound, "conflict": Conflict, "ambiguous": Conflict, "reject": Conflict}


def refused(result: Any, receipt: Receipt) -> StockadeError:
    """The exception that a tool's answer is."""
    code = result.error_code or result.status
    kind = _KINDS.get(result.status) or class_of(code, 400)
    return kind(code, result.error_message or "", receipt)
