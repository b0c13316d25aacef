"""The types of the contract. Made by generate.py from docs/api/openapi.json.

A member that may be absent is None when it is. Integers are exact, bytes are bytes; a name that Python
keeps for itself ends in an underscore.
"""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from dataclasses import field as member
from typing import Any, Mapping, Optional, Tuple

from .codec import Empty, EnvValue, Record


@dataclass(frozen=True, repr=False)
class Approval(Record):
    """Approval is an operation that waits for leave, or waited for it."""

    approval_id: str
    intent_id: str
    op: str
    #: who asks
    principal: Principal
    state: str
    #: policy's, for asking
    reason: str
    #: sha256:<hex> of what leave is asked for: request, facts, policy and what it would give
    review: str
    asked_at_ns: int
    asked_at: str
    deadline_ns: int
    deadline: str
    #: who asks may decide
    allow_own: Optional[bool] = None
    #: absent: policy knows
    approvers: Optional[Approvers] = None
    #: of an exec: the beginning
    argv: Optional[Tuple[str, ...]] = None
    comment: Optional[str] = None
    decided_at: Optional[str] = None
    decided_at_ns: Optional[int] = None
    #: absent where nobody did: time or the end of a session
    decided_by: Optional[Principal] = None
    #: intent of the decision
    decided_in: Optional[str] = None
    exec_id: Optional[str] = None
    #: of host.approval.get
    reviewed: Optional[Reviewed] = None
    session_id: Optional[str] = None


@dataclass(frozen=True, repr=False)
class ApprovalList(Record):
    """ApprovalList is a page of approvals, in the order in which they last changed."""

    approvals: Tuple[Approval, ...]
    next: str


@dataclass(frozen=True, repr=False)
class Approvers(Record):
    """Approvers names users."""

    #: primary or supplementary
    gids: Optional[Tuple[int, ...]] = None
    uids: Optional[Tuple[int, ...]] = None


@dataclass(frozen=True, repr=False)
class Artifact(Record):
    """Artifact is a file of the session that was returned as a blob."""

    path: str
    size_bytes: int
    #: permission bits
    mode: int
    blob_ref: Optional[str] = None
    error_code: Optional[str] = None


@dataclass(frozen=True, repr=False)
class Ask(Record):
    """Ask is the body of policy.decide: an operation and its parameters."""

    op: str
    #: admin.policy.activate and preview
    activate: Optional[PolicyActivate] = None
    cancel: Optional[ProcessCancel] = None
    close: Optional[SessionClose] = None
    #: host.process.signal
    deliver: Optional[ProcessSignal] = None
    drain: Optional[Drain] = None
    exec: Optional[Exec] = None
    forward: Optional[SessionForward] = None
    input: Optional[ProcessInput] = None
    log: Optional[LogLevel] = None
    modify: Optional[ProcessModify] = None
    narrow: Optional[SessionNarrow] = None
    open: Optional[SessionOpen] = None
    #: host.process.pause, resume and delete
    process: Optional[ProcessTarget] = None
    #: host.session.pause and resume
    session: Optional[SessionTarget] = None
    signal: Optional[SessionSignal] = None
    stop: Optional[ProcessStop] = None
    #: host.approval.approve and deny
    verdict: Optional[Verdict] = None
    #: host.workspace.diff, commit and discard
    workspace: Optional[Workspace] = None


@dataclass(frozen=True, repr=False)
class BlobOutput(Record):
    """Blob is an output that is too large to be in the document."""

    blob_ref: str
    size_bytes: int
    preview_bytes: Optional[bytes] = None


@dataclass(frozen=True, repr=False)
class BlobPut(Record):
    """BlobPut stores content."""

    size_bytes: int
    #: expected; a mismatch is refused
    blob_ref: Optional[str] = None


@dataclass(frozen=True, repr=False)
class BlobRef(Record):
    """BlobRef names a blob by content."""

    #: sha256:<64 hex>
    blob_ref: str


@dataclass(frozen=True, repr=False)
class BlobResult(Record):
    """BlobResult is the payload of blob.put."""

    blob_ref: str
    size_bytes: int


@dataclass(frozen=True, repr=False)
class Canary(Record):
    """Canary is one thing that was tried from inside before the session was ready."""

    name: str
    #: an errno's name, "ok" or "empty"; or "left out: " and why it was not tried, in got too
    want: str
    got: str


@dataclass(frozen=True, repr=False)
class Capabilities(Record):
    """Capabilities is the answer of host.capabilities: what a session can be held by here, before one is asked
    for."""

    kernel: str
    arch: str
    #: layout: "v1", "v2" or "hybrid"
    cgroup: str
    #: no required layer is missing
    sessions: bool
    layers: Tuple[Layer, ...]
    #: layers that a session may be without, if its caller and policy accept it
    degradable: Tuple[str, ...]
    #: kinds
    roots: Tuple[str, ...]
    seccomp_profiles: Tuple[str, ...]
    #: modes
    networks: Tuple[str, ...]
    #: "overlay" among them
    mount_modes: Tuple[str, ...]
    #: each that a session or an execution can have
    ceilings: Tuple[CeilingKind, ...]
    #: those of them that are not there: an open has to accept them
    degraded: Optional[Tuple[str, ...]] = None
    #: required layers that are not there: each open is refused
    missing: Optional[Tuple[str, ...]] = None


@dataclass(frozen=True, repr=False)
class Ceiling(Record):
    """Ceiling is the operator's bound on everything, whatever policy says: the daemon meets every grant with
    it, and the runner checks every Spec against it again."""

    #: that may be granted; CAP_SYS_ADMIN never
    capabilities: Optional[Tuple[str, ...]] = None
    cpu_millis: Optional[int] = None
    #: of one session
    cpu_time_ns: Optional[int] = None
    #: live in one session; daemon only
    executions: Optional[int] = None
    #: live, of one uid over all its sessions; daemon only
    executions_per_principal: Optional[int] = None
    files: Optional[int] = None
    #: a session may be without activity for so long; daemon only
    idle_ns: Optional[int] = None
    #: daemon only
    inline_bytes: Optional[int] = None
    memory_bytes: Optional[int] = None
    #: host directories that no source may reach, from below or from above, whatever mount_roots says
    mount_denied: Optional[Tuple[str, ...]] = None
    #: host directories below which sources of mounts, dir and paths roots must resolve
    mount_roots: Optional[Tuple[str, ...]] = None
    #: number of mounts of one session
    mounts: Optional[int] = None
    #: prefixes that no session reaches, by name or by address, whatever is granted
    network_denied: Optional[Tuple[str, ...]] = None
    #: modes that may be used
    networks: Optional[Tuple[str, ...]] = None
    #: per stream; daemon only
    output_bytes: Optional[int] = None
    pids: Optional[int] = None
    #: host directories below which rw mounts must resolve
    read_write: Optional[Tuple[str, ...]] = None
    #: kinds that may be used
    roots: Optional[Tuple[str, ...]] = None
    #: of all scratch and overlays of one session
    scratch_bytes: Optional[int] = None
    #: profiles that may be used
    seccomp: Optional[Tuple[str, ...]] = None
    #: live at once
    sessions: Optional[int] = None
    #: daemon only
    sessions_per_principal: Optional[int] = None
    #: of one execution; daemon only
    timeout_ns: Optional[int] = None
    #: daemon only
    ttl_ns: Optional[int] = None
    #: lowest and highest inside uid and gid; [0,0] = 1..65534
    uids: Optional[Tuple[int, ...]] = None


@dataclass(frozen=True, repr=False)
class CeilingKind(Record):
    """CeilingKind says whether a ceiling can be armed here."""

    #: the member of limits that asks for it
    name: str
    #: of a session
    session: bool
    #: of one execution, tighter than its session's
    execution: bool
    #: why it cannot, or at what cost it can
    detail: Optional[str] = None
    #: the operator's; 0 is none
    max: Optional[int] = None


@dataclass(frozen=True, repr=False)
class Ceilings(Record):
    """Ceilings bound a session."""

    #: thousandths of one CPU
    cpu_millis: Optional[int] = None
    #: user and system time of all executions together
    cpu_time_ns: Optional[int] = None
    #: Those that a session need not have. 0 is none.
    cpu_weight: Optional[int] = None
    #: of scratch and overlays together; such a session has no rw mount, which nothing bounds
    disk_bytes: Optional[int] = None
    disk_inodes: Optional[int] = None
    #: live at once
    executions: Optional[int] = None
    #: open files of one process
    files: Optional[int] = None
    #: read, and written, on the devices of the mounts
    io_bytes_per_second: Optional[int] = None
    #: swap is always 0
    memory_bytes: Optional[int] = None
    #: per stream of one execution
    output_bytes: Optional[int] = None
    pids: Optional[int] = None
    #: that may wait for their turn; 0 = 64, and none where exec.queue is false
    queued: Optional[int] = None


@dataclass(frozen=True, repr=False)
class CgroupFile(Record):
    """CgroupFile is one ceiling as the kernel holds it."""

    controller: str
    file: str
    value: str


@dataclass(frozen=True, repr=False)
class Change(Record):
    """Change is one difference between an overlay and what lies below it."""

    #: relative to the mount
    path: str
    #: added, modified, deleted
    kind: str
    #: file, dir, symlink, fifo
    type: str
    link: Optional[str] = None
    #: as path_bytes
    link_bytes: Optional[bytes] = None
    mode: Optional[int] = None
    #: the path, when it is not UTF-8: then path has U+FFFD for what is not
    path_bytes: Optional[bytes] = None
    size_bytes: Optional[int] = None


@dataclass(frozen=True, repr=False)
class Checkpoint(Record):
    """Checkpoint is the answer of receipt.checkpoint: what the journal's key has signed, to be kept where the
    supervisor cannot write."""

    #: signed note: number and Merkle root of all records so far
    note: str


@dataclass(frozen=True, repr=False)
class Chunk(Record):
    """Chunk is bytes of one stream, and where they belong."""

    #: of the arrival that it is a part of; from 1
    seq: int
    #: stdout or stderr
    stream: str
    #: of the first byte in its stream
    offset: int
    bytes: builtins.bytes
    at_ns: Optional[int] = None


@dataclass(frozen=True, repr=False)
class Clamp(Record):
    """Clamp says that a request-level limit was lowered (C17)."""

    #: e.g. "limits.memory_bytes"
    field: str
    requested: int
    effective: int
    #: "policy", "ceiling" or "runtime"
    source: str


@dataclass(frozen=True, repr=False)
class CloseResult(Record):
    """CloseResult is the payload of host.session.close."""

    #: closed, not_found
    status: str
    ended_at: Optional[str] = None
    ended_at_ns: Optional[int] = None
    final_state: Optional[str] = None
    #: closed, expired, signal, …
    reason: Optional[str] = None
    summary: Optional[str] = None
    usage: Optional[Usage] = None


@dataclass(frozen=True, repr=False)
class ControlResult(Record):
    """ControlResult is the payload of the operations on an execution and of session pause, resume and
    narrow."""

    #: see the operation
    status: str
    #: of input that was written
    bytes: Optional[int] = None
    #: of host.process.stop: how many were ended; of session.narrow: connections that it cut off
    count: Optional[int] = None
    error_code: Optional[str] = None
    exec_id: Optional[str] = None
    #: that started it
    intent_id: Optional[str] = None
    #: of admin.log.level: from here on
    log_level: Optional[str] = None
    #: of admin.log.level: what it was before
    previous: Optional[str] = None
    #: afterwards
    state: Optional[str] = None
    #: effective
    timeout_ns: Optional[int] = None


@dataclass(frozen=True, repr=False)
class Decision(Record):
    """Decision is the answer of policy.decide: what would become of the operation, and why."""

    op: str
    allow: bool
    policy: PolicyRef
    clamped: Optional[Tuple[Clamp, ...]] = None
    deny: Optional[Tuple[Deny, ...]] = None
    #: of an open: the effective one
    grant: Optional[Grant] = None
    #: it would wait for somebody's leave
    require_approval: Optional[RequireApproval] = None
    warn: Optional[Tuple[str, ...]] = None


@dataclass(frozen=True, repr=False)
class Denial(Record):
    """Denial is something that a layer refused at run time, from that layer's own evidence."""

    #: seccomp, network, dns
    layer: str
    rule: str
    errno: str
    count: int
    at_ns: int
    at: str
    #: the least that would have allowed it; absent where no one thing does
    grant: Optional[str] = None
    object: Optional[str] = None
    syscall: Optional[str] = None


@dataclass(frozen=True, repr=False)
class Deny(Record):
    """Deny is one reason of a denial."""

    code: str
    message: Optional[str] = None
    #: the object that was refused, e.g. "mount:/etc"
    subject: Optional[str] = None


@dataclass(frozen=True, repr=False)
class Destination(Record):
    """Destination is what may be reached over TCP: a name or a prefix of addresses, with ports."""

    #: a prefix, such as "192.0.2.0/24"; instead of a name
    cidr: Optional[str] = None
    #: a DNS name in lower case, or "*." and one for the names below it
    name: Optional[str] = None
    #: absent = every port
    ports: Optional[Tuple[int, ...]] = None
    #: of a name: "" wants it in the first bytes, as TLS and HTTP have it; "tcp" goes by address alone
    protocol: Optional[str] = None


@dataclass(frozen=True, repr=False)
class Digest(Record):
    """Digest names a host path and the digest of its content."""

    path: str
    #: sha256:<hex> of the tree, as sandbox.TreeDigest defines
    digest: str
    files: int
    size_bytes: int


@dataclass(frozen=True, repr=False)
class Drain(Record):
    """Drain has the supervisor take no new sessions and executions (admin.drain), until it is undone."""

    scope: Optional[Scope] = None
    undo: Optional[bool] = None


@dataclass(frozen=True, repr=False)
class Enforced(Record):
    """Enforced is what the kernel says is in force, read back after the session was built."""

    #: kind to inode, each different from the supervisor's
    namespaces: Mapping[str, int]
    no_new_privs: bool
    #: 2 = filter
    seccomp: int
    #: bounding set of executions, hex
    capabilities: str
    memory_bytes: int
    swap_bytes: int
    cpu_millis: int
    pids: int
    #: mountinfo of the session: "target type options"
    mounts: Tuple[str, ...]
    #: layout: "v1", "v2" or "hybrid"
    cgroup: str
    #: whose rights are handled; 0 = no Landlock
    landlock_abi: int
    #: that can be made in the session's
    max_user_namespaces: int
    #: of verify
    canaries: Optional[Tuple[Canary, ...]] = None
    #: each ceiling's file in each hierarchy
    ceilings: Optional[Tuple[CgroupFile, ...]] = None
    #: layers that the host lacks and the caller does without
    degraded: Optional[Tuple[str, ...]] = None
    #: what holds the device allow-list: "bpf", or "bpf and devices"
    devices: Optional[str] = None
    #: interfaces, routes and rules, as text
    network: Optional[Tuple[str, ...]] = None
    #: layer to how its refusals come to be told; "" when they do not
    reports: Optional[Mapping[str, str]] = None
    #: hard limits of executions: "NOFILE", …
    rlimits: Optional[Mapping[str, int]] = None
    #: sha256:<hex> of the program that init was given; Seccomp says that one is in force
    seccomp_filter: Optional[str] = None


@dataclass(frozen=True, repr=False)
class Error(Record):
    """Error is an error that a caller sees: a stable code and a sentence."""

    code: str
    message: str


@dataclass(frozen=True, repr=False)
class ErrorBody(Record):
    """ErrorBody is the body of every answer that is not a receipt or a document."""

    error: Error
    #: as the page from that position would have it
    gone: Optional[Gone] = None


@dataclass(frozen=True, repr=False)
class Event(Record):
    """Event is one event of a stream, as SSE data or as one NDJSON line."""

    kind: str
    #: of accepted: it waits for leave
    approval_id: Optional[str] = None
    #: when the bytes arrived at the supervisor
    at_ns: Optional[int] = None
    bytes: Optional[builtins.bytes] = None
    cursor: Optional[str] = None
    exec_id: Optional[str] = None
    frame: Optional[Frame] = None
    gone: Optional[Gone] = None
    intent_id: Optional[str] = None
    #: the reader is behind; nothing is left out
    lagged: Optional[Lagged] = None
    #: of the first byte of Bytes in its stream
    offset: Optional[int] = None
    receipt: Optional[Receipt] = None
    #: stdout or stderr
    stream: Optional[str] = None


@dataclass(frozen=True, repr=False)
class Exec(Record):
    """Exec asks for one command in a session (host.exec), or for a shell: a command on a terminal
    (host.shell.open)."""

    session_id: str
    argv: Tuple[str, ...]
    #: relative resolves under the session's workdir
    cwd: Optional[str] = None
    env_patch: Optional[Mapping[str, EnvValue]] = None
    #: shown to policy, filterable
    labels: Optional[Mapping[str, str]] = None
    #: below the session's (R053)
    limits: Optional[Limits] = None
    max_inline_bytes: Optional[int] = None
    output_mode: Optional[str] = None
    #: inside paths returned as blobs once the command has ended
    outputs: Optional[Tuple[str, ...]] = None
    scope: Optional[Scope] = None
    stdin: Optional[Stdin] = None
    #: stdin stays open after what Stdin says, for host.process.input
    stdin_open: Optional[bool] = None
    #: alias of stdin.blob_ref (C28)
    stdin_ref: Optional[str] = None
    #: of host.shell.open alone
    terminal: Optional[Terminal] = None
    #: nanoseconds of wall time; 0 means the grant's
    timeout_ns: Optional[int] = None
    #: false: answer with the ids as soon as the intent is durable
    wait: Optional[bool] = None
    #: answer with the receipt, or after so long with the ids and the output so far
    wait_ms: Optional[int] = None


@dataclass(frozen=True, repr=False)
class ExecResult(Record):
    """ExecResult is the payload of host.exec."""

    #: ok, timeout, signaled, error
    status: str
    #: -1 when there is none
    exit_code: int
    #: of a shell: how many it said had ended
    commands: Optional[int] = None
    #: what was refused to it at run time: the first of each kind
    denials: Optional[Tuple[Denial, ...]] = None
    denials_dropped: Optional[int] = None
    ended_at: Optional[str] = None
    ended_at_ns: Optional[int] = None
    error_code: Optional[str] = None
    error_message: Optional[str] = None
    #: ceilings that were reached, whatever the command made of it
    limits_hit: Optional[Tuple[LimitHit, ...]] = None
    #: through the relay
    network: Optional[Traffic] = None
    outputs: Optional[Tuple[Artifact, ...]] = None
    overflow: Optional[Overflow] = None
    #: of a shell that was recorded
    recording: Optional[Recording] = None
    signal: Optional[str] = None
    started_at: Optional[str] = None
    started_at_ns: Optional[int] = None
    stderr: Optional[Output] = None
    stderr_bytes: Optional[int] = None
    stdout: Optional[Output] = None
    #: written by the process, kept or not
    stdout_bytes: Optional[int] = None
    #: of a shell: sha256:<hex> of all that came out of its terminal, kept or not, marks included
    transcript: Optional[str] = None
    #: that cannot say what they refuse; of a command that failed
    unreported_layers: Optional[Tuple[str, ...]] = None
    usage: Optional[Usage] = None


@dataclass(frozen=True, repr=False)
class FileEdit(Record):
    """FileEdit replaces text in a file (host.fs.edit_file)."""

    session_id: str
    old_string: str
    new_string: str
    dry_run: Optional[bool] = None
    #: without the fuzzy rules
    exact_only: Optional[bool] = None
    expected_sha256: Optional[str] = None
    #: alias of path (R199)
    file_path: Optional[str] = None
    path: Optional[str] = None
    #: the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not
    path_bytes: Optional[bytes] = None
    replace_all: Optional[bool] = None
    scope: Optional[Scope] = None


@dataclass(frozen=True, repr=False)
class FileGlob(Record):
    """FileGlob asks for the files whose paths a pattern matches, newest first (host.fs.glob)."""

    session_id: str
    pattern: str
    case_insensitive: Optional[bool] = None
    #: absent is 100
    max_results: Optional[int] = None
    output_mode: Optional[str] = None
    path: Optional[str] = None
    #: the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not
    path_bytes: Optional[bytes] = None
    respect_ignore: Optional[bool] = None
    scope: Optional[Scope] = None


@dataclass(frozen=True, repr=False)
class FileGrep(Record):
    """FileGrep asks for the lines that a pattern matches (host.fs.grep)."""

    session_id: str
    pattern: str
    after: Optional[int] = None
    #: lines of context
    before: Optional[int] = None
    case_insensitive: Optional[bool] = None
    fixed_strings: Optional[bool] = None
    #: without a slash it means any depth; "!" before it excludes
    glob_filter: Optional[str] = None
    #: matching lines of one file that count; 0 is all
    max_per_file: Optional[int] = None
    #: matching lines in the answer; absent is 100
    max_results: Optional[int] = None
    #: the pattern may match across lines, and . matches their ends
    multiline: Optional[bool] = None
    output_mode: Optional[str] = None
    path: Optional[str] = None
    #: the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not
    path_bytes: Optional[bytes] = None
    respect_ignore: Optional[bool] = None
    scope: Optional[Scope] = None


@dataclass(frozen=True, repr=False)
class FileList(Record):
    """FileList asks for the names in a directory (host.fs.list_dir)."""

    session_id: str
    #: absent is 100
    max_results: Optional[int] = None
    output_mode: Optional[str] = None
    path: Optional[str] = None
    #: the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not
    path_bytes: Optional[bytes] = None
    scope: Optional[Scope] = None


@dataclass(frozen=True, repr=False)
class FileMkdir(Record):
    """FileMkdir makes a directory (host.fs.mkdir)."""

    session_id: str
    #: and a directory that is there already is no conflict
    create_parents: Optional[bool] = None
    path: Optional[str] = None
    #: the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not
    path_bytes: Optional[bytes] = None
    scope: Optional[Scope] = None


@dataclass(frozen=True, repr=False)
class FileMove(Record):
    """FileMove renames a file, a directory or a link (host.fs.move)."""

    session_id: str
    #: a file that is there is replaced; never a directory
    overwrite: Optional[bool] = None
    path: Optional[str] = None
    #: the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not
    path_bytes: Optional[bytes] = None
    scope: Optional[Scope] = None
    to: Optional[str] = None
    to_bytes: Optional[bytes] = None


@dataclass(frozen=True, repr=False)
class FilePatch(Record):
    """FilePatch changes any number of files, all or none (host.fs.apply_patch)."""

    session_id: str
    patch: ToolPatchText
    dry_run: Optional[bool] = None
    #: "v4a" (default) or "unified"
    patch_format: Optional[str] = None
    scope: Optional[Scope] = None


@dataclass(frozen=True, repr=False)
class FileRead(Record):
    """FileRead asks for a file, or a range of it (host.fs.read_file)."""

    session_id: str
    #: "utf8" (default) or "bytes"
    encoding: Optional[str] = None
    #: absent: all, up to the ceilings
    max_bytes: Optional[int] = None
    #: 0: all
    max_lines: Optional[int] = None
    offset_bytes: Optional[int] = None
    output_mode: Optional[str] = None
    path: Optional[str] = None
    #: the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not
    path_bytes: Optional[bytes] = None
    scope: Optional[Scope] = None
    #: from 1; 0 does not count lines
    start_line: Optional[int] = None


@dataclass(frozen=True, repr=False)
class FileRemove(Record):
    """FileRemove removes a file, a link or a directory (host.fs.remove)."""

    session_id: str
    path: Optional[str] = None
    #: the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not
    path_bytes: Optional[bytes] = None
    #: what is in a directory too
    recursive: Optional[bool] = None
    scope: Optional[Scope] = None


@dataclass(frozen=True, repr=False)
class FileStat(Record):
    """FileStat asks what is at a path (host.fs.stat), or only whether there is anything (host.fs.exists)."""

    session_id: str
    #: of a symbolic link at the path, the link itself
    link: Optional[bool] = None
    path: Optional[str] = None
    #: the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not
    path_bytes: Optional[bytes] = None
    scope: Optional[Scope] = None


@dataclass(frozen=True, repr=False)
class FileTool(Record):
    """FileTool asks for one file operation in a session (host.fs.*)."""

    session_id: str
    op: str
    edit: Optional[ToolEdit] = None
    glob: Optional[ToolGlob] = None
    grep: Optional[ToolGrep] = None
    list: Optional[ToolList] = None
    mkdir: Optional[ToolMkdir] = None
    move: Optional[ToolMove] = None
    patch: Optional[ToolPatch] = None
    read: Optional[ToolRead] = None
    remove: Optional[ToolRemove] = None
    scope: Optional[Scope] = None
    #: host.fs.stat and host.fs.exists
    stat: Optional[ToolStat] = None
    write: Optional[ToolWrite] = None


@dataclass(frozen=True, repr=False)
class FileWrite(Record):
    """FileWrite gives a file its content (host.fs.write_file)."""

    session_id: str
    content: ToolContent
    create_parents: Optional[bool] = None
    #: set or take the executable bits; absent leaves them
    executable: Optional[bool] = None
    #: of what is replaced, 64 hex digits; "absent" expects no file
    expected_sha256: Optional[str] = None
    #: "overwrite" (default) or "create_new"
    mode: Optional[str] = None
    path: Optional[str] = None
    #: the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not
    path_bytes: Optional[bytes] = None
    scope: Optional[Scope] = None


@dataclass(frozen=True, repr=False)
class ForwardResult(Record):
    """ForwardResult is the payload of host.session.forward."""

    #: closed, error
    status: str
    #: that were made inside
    connections: int
    #: that were not: nobody listened
    refused: int
    #: into the session
    sent_bytes: int
    received_bytes: int
    error_code: Optional[str] = None
    port: Optional[int] = None
    #: "cut": the session ended or was narrowed; otherwise its caller left
    reason: Optional[str] = None


@dataclass(frozen=True, repr=False)
class Frame(Record):
    """Frame is a durable milestone of an intent (R118): journaled before anybody sees it, and seen by all who
    look, in the order of Seq."""

    #: "stockade"
    origin_module_id: str
    #: whose intent it is: uid and scope
    origin_instance_key: str
    intent_id: str
    effect_kind: str
    #: number of the intent's record in the journal: the fence
    emitted_at_seq: int
    #: from 1, per intent
    seq: int
    kind: str
    at_ns: int
    at: str
    payload: Optional[FramePayload] = None


@dataclass(frozen=True, repr=False)
class FrameList(Record):
    """FrameList is a page of the frames of one intent, in order."""

    frames: Tuple[Frame, ...]
    #: what was asked for is not kept any more
    gone: Optional[Gone] = None
    receipt: Optional[Receipt] = None


@dataclass(frozen=True, repr=False)
class FramePayload(Record):
    """FramePayload is what a frame carries: totals, never the bytes themselves (R121, R122)."""

    #: of its end
    cause: Optional[str] = None
    cols: Optional[int] = None
    #: that begins, or has ended
    command_id: Optional[str] = None
    #: that have ended so far
    commands: Optional[int] = None
    elapsed_ns: Optional[int] = None
    exec_id: Optional[str] = None
    exit_code: Optional[int] = None
    #: all that was written so far
    input_bytes: Optional[int] = None
    input_closed: Optional[bool] = None
    input_id: Optional[str] = None
    #: when TERM becomes KILL
    kill_at_ns: Optional[int] = None
    #: in its output: where that of the command ended, or its prompt is there
    offset: Optional[int] = None
    rows: Optional[int] = None
    session_id: Optional[str] = None
    #: changes of state since the last frame that have none of their own
    skipped: Optional[int] = None
    #: Of a shell.
    status: Optional[str] = None
    stderr_bytes: Optional[int] = None
    stdout_bytes: Optional[int] = None
    timeout_ns: Optional[int] = None


@dataclass(frozen=True, repr=False)
class Gone(Record):
    """Gone says that what was asked for is not kept any more, and what is."""

    #: the position that was asked for
    from_: str = member(metadata={"name": "from"})
    #: cursor; absent when nothing is
    first_available: Optional[str] = None


@dataclass(frozen=True, repr=False)
class Grant(Record):
    """Grant is the whole answer of policy to an open: everything that the session may be."""

    #: "host", "dir" or "paths": the arm that is granted
    root: str
    #: the mounts that are granted, of those asked for
    mounts: Tuple[GrantMount, ...]
    #: private tmpfs
    scratch: Tuple[GrantScratch, ...]
    identity: Identity
    ceilings: Ceilings
    #: profile name: "default", "build" or "strict"
    seccomp: str
    network: GrantNetwork
    env: GrantEnv
    exec: GrantExec
    workdir: str
    hostname: str
    #: layers that the session may be without where the host lacks them
    accept_degraded: Optional[Tuple[str, ...]] = None
    #: the grant itself ends here (R109)
    expires_at_ns: Optional[int] = None
    #: what file tools may do; absent is nothing
    fs: Optional[GrantFS] = None
    #: after so long without activity the session ends (R021)
    idle_timeout_ns: Optional[int] = None
    #: "terminate": the session ends with its supervisor; "" and "adopt" leave it to the caller
    on_restart: Optional[str] = None
    #: name for receipts
    profile: Optional[str] = None
    ttl_ns: Optional[int] = None
    #: "canary": what must fail is tried from inside before the session is ready
    verify: Optional[str] = None


@dataclass(frozen=True, repr=False)
class GrantChange(Record):
    """GrantChange is one field in which two grants differ."""

    field: str
    #: null is absent
    before: Any
    after: Any
    #: wider, narrower, other
    effect: str


@dataclass(frozen=True, repr=False)
class GrantEnv(Record):
    """GrantEnv is the environment: the names that a caller may set, and what policy sets."""

    #: names or "PREFIX_*"; absent = any, [] = none
    allow: Optional[Tuple[str, ...]] = None
    max: Optional[int] = None
    #: wins over the caller
    set: Optional[Mapping[str, str]] = None


@dataclass(frozen=True, repr=False)
class GrantExec(Record):
    """GrantExec bounds what may be executed in the session."""

    #: processes may outlive the execution that started them
    background: Optional[bool] = None
    cwd_prefixes: Optional[Tuple[str, ...]] = None
    default_timeout_ns: Optional[int] = None
    #: of one argument
    max_arg_bytes: Optional[int] = None
    #: number of arguments
    max_argv: Optional[int] = None
    max_inline_bytes: Optional[int] = None
    max_timeout_ns: Optional[int] = None
    output_modes: Optional[Tuple[str, ...]] = None
    #: inside paths that `outputs` may name
    output_prefixes: Optional[Tuple[str, ...]] = None
    #: false: what cannot start at once is refused; absent = it waits (R052)
    queue: Optional[bool] = None
    #: absent: shells are not recorded
    record: Optional[GrantRecord] = None
    #: false: none is opened; absent = as commands are (R175)
    shells: Optional[bool] = None
    signals: Optional[Tuple[str, ...]] = None


@dataclass(frozen=True, repr=False)
class GrantFS(Record):
    """GrantFS bounds the file tools of a session (R093 to R106)."""

    #: of read, write, edit, patch, search, list and stat
    ops: Tuple[str, ...]
    #: "deny", "within_root_only" (default) or "allow"
    follow_symlinks: Optional[str] = None
    #: by one patch
    max_changed_files: Optional[int] = None
    #: by one edit
    max_edit_replacements: Optional[int] = None
    #: of globs and lists; more is cut
    max_glob_results: Optional[int] = None
    #: more is cut
    max_grep_results: Optional[int] = None
    #: of an answer that is no blob
    max_inline_bytes: Optional[int] = None
    #: of the patch itself
    max_patch_bytes: Optional[int] = None
    #: of one answer; more is cut
    max_read_bytes: Optional[int] = None
    #: likewise
    max_scan_bytes: Optional[int] = None
    #: a scan ends there, and says so
    max_scan_files: Optional[int] = None
    #: of one file's new content
    max_write_bytes: Optional[int] = None
    #: "v4a" and "unified"; absent = v4a
    patch_formats: Optional[Tuple[str, ...]] = None
    #: inside directories; absent = any
    roots: Optional[Tuple[str, ...]] = None
    #: of them, those below which alone something is changed; absent = all
    write_roots: Optional[Tuple[str, ...]] = None


@dataclass(frozen=True, repr=False)
class GrantForward(Record):
    """GrantForward lets the owner of a session reach ports on its loopback (host.session.forward)."""

    #: absent = every port
    ports: Optional[Tuple[int, ...]] = None


@dataclass(frozen=True, repr=False)
class GrantMount(Record):
    """GrantMount is one mount that policy grants."""

    host_path: str
    guest_path: str
    #: "ro", "rw" or "overlay": writable inside, and nothing outside changes before a commit
    mode: str
    #: Of an overlay: the room for what is written. Both are needed.
    bytes: Optional[int] = None
    #: "input": its content is digested for the receipt; any other word is the author's
    class_: Optional[str] = member(default=None, metadata={"name": "class"})
    inodes: Optional[int] = None
    #: Of a mode that writes: paths below the mount, such as ".git/hooks", that nobody inside changes, creates
    #: or moves.
    protect: Optional[Tuple[str, ...]] = None


@dataclass(frozen=True, repr=False)
class GrantNetwork(Record):
    """GrantNetwork is the network that is granted."""

    #: "none", "egress" (what allow names) or "full" (the public internet, and what allow names)
    mode: str
    #: of egress and full
    allow: Optional[Tuple[Destination, ...]] = None
    #: what its owner may reach inside; absent is nothing
    forward: Optional[GrantForward] = None


@dataclass(frozen=True, repr=False)
class GrantRecord(Record):
    """GrantRecord has every shell of a session recorded, from its beginning on, as an asciicast."""

    #: of output, and of what is noted beside it, at most; 0 = ceilings.output_bytes
    bytes: Optional[int] = None
    #: what is typed, too; but nothing that is secret, or is typed where nothing is to be seen of it
    input: Optional[bool] = None


@dataclass(frozen=True, repr=False)
class GrantScratch(Record):
    """GrantScratch is a private, empty, writable file system."""

    guest_path: str
    bytes: int
    inodes: int


@dataclass(frozen=True, repr=False)
class Host(Record):
    """Host is what this kernel and this place offer, probed once by sandbox/host and passed in from then on."""

    kernel: str
    arch: str
    #: "v1", "v2" or "hybrid"
    cgroup: str
    #: every layer that a session rests on, and what it costs to miss it
    layers: Tuple[Layer, ...]
    cpus: int
    memory_bytes: int


@dataclass(frozen=True, repr=False)
class HostInfo(Record):
    """HostInfo is the answer of host.info: the machine, the operator's ceiling, and the policy in force."""

    version: Version
    host: Host
    ceiling: Ceiling
    policy_digest: str
    #: public key of the journal's checkpoints, in note form
    journal_key: Optional[str] = None
    #: absent: policy is evaluated by the supervisor itself
    policy_workers: Optional[PolicyWorkers] = None


@dataclass(frozen=True, repr=False)
class Identity(Record):
    """Identity is what executions run as inside."""

    uid: int
    gid: int
    capabilities: Optional[Tuple[str, ...]] = None
    groups: Optional[Tuple[int, ...]] = None


@dataclass(frozen=True, repr=False)
class InlineBytes(Record):
    """InlineBytes is bytes in the document itself, base64 on the wire."""

    bytes: builtins.bytes


@dataclass(frozen=True, repr=False)
class InlineText(Record):
    """InlineText is UTF-8 text in the document itself."""

    text: str


@dataclass(frozen=True, repr=False)
class Intent(Record):
    """Intent is an operation with effect, in flight or settled."""

    intent_id: str
    op: str
    principal: Principal
    #: number of its record in the journal
    emitted_at_seq: int
    #: of its last frame
    frame_seq: int
    admitted_at_ns: int
    admitted_at: str
    #: while in flight
    age_ns: Optional[int] = None
    #: it waited for leave, or waits
    approval_id: Optional[str] = None
    exec_id: Optional[str] = None
    idempotency_key: Optional[str] = None
    outcome: Optional[str] = None
    requested_kind: Optional[str] = None
    session_id: Optional[str] = None
    settled_at: Optional[str] = None
    settled_at_ns: Optional[int] = None
    #: queued, while it waits for leave
    state: Optional[str] = None


@dataclass(frozen=True, repr=False)
class IntentList(Record):
    """IntentList is a page of intents, newest first."""

    intents: Tuple[Intent, ...]


@dataclass(frozen=True, repr=False)
class Lagged(Record):
    """Lagged says how far a reader of output is behind the process."""

    stream: str
    #: where the reader is
    from_: int = member(metadata={"name": "from"})
    #: where the process is
    to: int


@dataclass(frozen=True, repr=False)
class Layer(Record):
    """Layer is one protection, and whether it can be had here."""

    #: e.g. "idmapped mounts"
    name: str
    #: "present", "missing" or "unknown"
    state: str
    required: bool
    #: what was found: a version, an ABI, an errno
    detail: Optional[str] = None
    #: what would grant it
    remedy: Optional[str] = None


@dataclass(frozen=True, repr=False)
class LimitHit(Record):
    """LimitHit is a ceiling that was reached while a command ran."""

    #: memory, pids, cpu_time, disk_bytes, disk_inodes, output_bytes, timeout
    ceiling: str
    #: oom_killed, pids_exceeded, …
    code: str
    #: "execution", or "session" when the ceiling is shared
    scope: str
    #: bytes, processes, nanoseconds or inodes
    limit: int
    #: what would raise it
    hint: str
    #: how often
    count: Optional[int] = None
    object: Optional[str] = None
    #: 0 where the kernel does not say
    peak: Optional[int] = None


@dataclass(frozen=True, repr=False)
class Limits(Record):
    """Limits are ceilings that the caller asks for, below those of the grant."""

    #: thousandths of one CPU
    cpu_millis: Optional[int] = None
    #: user and system time of the whole tree
    cpu_time_ns: Optional[int] = None
    #: Of a session only.
    cpu_weight: Optional[int] = None
    disk_bytes: Optional[int] = None
    disk_inodes: Optional[int] = None
    #: open files of one process
    files: Optional[int] = None
    io_bytes_per_second: Optional[int] = None
    memory_bytes: Optional[int] = None
    #: per stream of one execution
    output_bytes: Optional[int] = None
    pids: Optional[int] = None


@dataclass(frozen=True, repr=False)
class Load(Record):
    """Load is what a session uses at the moment at which it is asked for; its ceilings are in its grant."""

    memory_bytes: int
    pids: int
    #: that all executions have used, those that are over included
    cpu_ns: int
    #: that executions wrote
    output_bytes: int
    #: operations on it that policy or a ceiling said no to
    denied: int
    #: what its layers refused to executions that have ended
    refused: int
    #: when memory, pids and cpu were read; 0: not yet
    sampled_at_ns: Optional[int] = None


@dataclass(frozen=True, repr=False)
class Local(Record):
    """Local builds the session from namespaces of this kernel."""

    #: of egress and full: what is wanted, and no more is granted; absent leaves it to policy
    egress: Optional[Tuple[Destination, ...]] = None
    env: Optional[Mapping[str, EnvValue]] = None
    hostname: Optional[str] = None
    mounts: Optional[Tuple[Mount, ...]] = None
    #: "none" (default), "egress" or "full"
    network_mode: Optional[str] = None
    root: Optional[Root] = None
    #: absolute inside path; "" means the grant's
    workdir: Optional[str] = None


@dataclass(frozen=True, repr=False)
class LogLevel(Record):
    """LogLevel gives the supervisor's log another level (admin.log.level), until the supervisor starts or reads
    its configuration again."""

    #: debug, info, warn or error
    level: str
    scope: Optional[Scope] = None


@dataclass(frozen=True, repr=False)
class Mount(Record):
    """Mount binds a host path into the session."""

    host_path: str
    guest_path: str
    #: "ro", "rw" or "overlay"
    mode: str
    #: of an overlay: the room for what is written; 0 means the grant's
    bytes: Optional[int] = None
    inodes: Optional[int] = None


@dataclass(frozen=True, repr=False)
class Notice(Record):
    """Notice is one entry of the event log of a session or a principal."""

    seq: int
    kind: str
    at_ns: int
    at: str
    approval_id: Optional[str] = None
    detail: Optional[str] = None
    exec_id: Optional[str] = None
    intent_id: Optional[str] = None
    op: Optional[str] = None
    #: error or deny code, or why a session ended
    reason: Optional[str] = None
    session_id: Optional[str] = None
    #: of the session, the execution or the approval, from here on
    state: Optional[str] = None
    stderr_bytes: Optional[int] = None
    stdout_bytes: Optional[int] = None


@dataclass(frozen=True, repr=False)
class NoticeList(Record):
    """NoticeList is a page of an event log, in order."""

    events: Tuple[Notice, ...]
    next: int
    gone: Optional[Gone] = None


@dataclass(frozen=True, repr=False)
class OpenResult(Record):
    """OpenResult is the payload of host.session.open."""

    #: "ready" or "error"
    status: str
    enforced: Optional[Enforced] = None
    error_code: Optional[str] = None
    error_message: Optional[str] = None
    expires_at: Optional[str] = None
    expires_at_ns: Optional[int] = None
    #: effective: the meet of request, policy and ceiling
    grant: Optional[Grant] = None
    #: digested root paths and inputs
    inputs: Optional[Tuple[Digest, ...]] = None
    session_id: Optional[str] = None
    started_at: Optional[str] = None
    started_at_ns: Optional[int] = None


@dataclass(frozen=True, repr=False)
class Output(Record):
    """Output is one stream of an execution: a tagged variant."""

    blob: Optional[BlobOutput] = None
    inline_bytes: Optional[InlineBytes] = None
    inline_text: Optional[InlineText] = None
    #: of a shell: where what is kept begins, the end of its output
    offset: Optional[int] = None
    #: written by the process, when truncated
    total_bytes: Optional[int] = None
    #: the output ceiling cut it
    truncated: Optional[bool] = None


@dataclass(frozen=True, repr=False)
class Overflow(Record):
    """Overflow says which stream did not fit inline although inline was required."""

    stream: str
    size_bytes: int
    limit_bytes: int


@dataclass(frozen=True, repr=False)
class Payload(Record):
    """Payload is the operation's own result: a tagged variant, the arm that Op names."""

    blob: Optional[BlobResult] = None
    close: Optional[CloseResult] = None
    control: Optional[ControlResult] = None
    exec: Optional[ExecResult] = None
    file: Optional[ToolResult] = None
    forward: Optional[ForwardResult] = None
    open: Optional[OpenResult] = None
    policy: Optional[PolicyResult] = None
    shell: Optional[ShellResult] = None
    signal: Optional[SignalResult] = None
    verdict: Optional[VerdictResult] = None
    workspace: Optional[SpaceResult] = None


@dataclass(frozen=True, repr=False)
class Pending(Record):
    """Pending is the answer about an execution that goes on: to host.exec with wait false or wait_ms, and to
    host.process.output."""

    intent_id: str
    exec_id: str
    session_id: str
    state: str
    #: what follows Output, for after
    cursor: str
    #: it waits for leave
    approval_id: Optional[str] = None
    #: nothing follows Output, ever
    end: Optional[bool] = None
    gone: Optional[Gone] = None
    #: in order of arrival
    output: Optional[Tuple[Chunk, ...]] = None
    receipt: Optional[Receipt] = None


@dataclass(frozen=True, repr=False)
class PolicyActivate(Record):
    """PolicyActivate asks that the policy which is there now be the one that decides (admin.policy.activate),
    or what would become of that (admin.policy.preview)."""

    #: of the revision that is meant: another one is refused
    digest: Optional[str] = None
    #: what becomes of a session that would get less today: "keep", "narrow" (or end, where it cannot be
    #: narrowed) or "terminate"; "" leaves it to the policy
    live: Optional[str] = None
    scope: Optional[Scope] = None
    #: only while no intent is open; otherwise any time, for what is opened from then on
    strict: Optional[bool] = None


@dataclass(frozen=True, repr=False)
class PolicyPreview(Record):
    """PolicyPreview is the answer of admin.policy.preview: the candidate, which was validated, and what its
    activation would do."""

    active: PolicyRevision
    candidate: PolicyRevision
    #: that are open: those that would get less first
    sessions: Tuple[PolicySession, ...]
    #: of strict: what keeps it from being activated now
    blocking: Optional[Quiescence] = None
    sessions_dropped: Optional[int] = None


@dataclass(frozen=True, repr=False)
class PolicyRef(Record):
    """PolicyRef says which policy decided and by which rules."""

    #: of the bundle's files: sha256:<hex>
    digest: str
    #: e.g. data.stockade.open.decision
    entrypoint: str
    #: of the METADATA of these rules and their packages: "name=value"
    labels: Optional[Tuple[str, ...]] = None
    #: number of the bundle, if it has one
    revision: Optional[int] = None
    #: rules that were evaluated to a value: "file:line package.rule"
    rules: Optional[Tuple[str, ...]] = None


@dataclass(frozen=True, repr=False)
class PolicyRefusal(Record):
    """PolicyRefusal says why a candidate is not the policy."""

    error_code: str
    error_message: str
    #: start, file, signal or api
    trigger: str
    at_ns: int
    at: str
    #: absent when it could not be read
    digest: Optional[str] = None
    revision: Optional[int] = None


@dataclass(frozen=True, repr=False)
class PolicyResult(Record):
    """PolicyResult is the payload of admin.policy.activate."""

    #: activated, unchanged, blocked, refused, error
    status: str
    blocking: Optional[Quiescence] = None
    error_code: Optional[str] = None
    #: digest
    previous: Optional[str] = None
    revision: Optional[PolicyRevision] = None
    #: that did not stay as they were, the first of them
    sessions: Optional[Tuple[PolicySession, ...]] = None
    sessions_dropped: Optional[int] = None


@dataclass(frozen=True, repr=False)
class PolicyRevision(Record):
    """PolicyRevision is one revision of the policy."""

    #: of the files that decide: what receipts name
    digest: str
    activated_at: Optional[str] = None
    #: by this supervisor
    activated_at_ns: Optional[int] = None
    #: of the builtins that it may call
    capabilities_digest: Optional[str] = None
    #: with the supervisor
    contract: Optional[int] = None
    data_digest: Optional[str] = None
    #: its manifest's; 0 = it has none
    revision: Optional[int] = None
    #: that are judged by it until they end
    sessions: Optional[int] = None
    #: sha256:<hex> of the public key; absent = no signature was asked for
    signed_by: Optional[str] = None
    #: where it was read; absent = it came with the supervisor
    source: Optional[str] = None


@dataclass(frozen=True, repr=False)
class PolicySession(Record):
    """PolicySession is what a candidate means to an open session: its open was asked again."""

    session_id: str
    principal: Principal
    #: that it is judged by
    policy_digest: str
    #: same, wider, narrower, denied, or unknown: it could not be asked again
    verdict: str
    #: keep, narrow, terminate
    action: str
    #: from what it has to what it would get
    changes: Optional[Tuple[GrantChange, ...]] = None
    #: why it would not be opened
    deny: Optional[Tuple[Deny, ...]] = None
    error_code: Optional[str] = None
    profile: Optional[str] = None
    #: of activate: kept, narrowed, terminated, error
    status: Optional[str] = None


@dataclass(frozen=True, repr=False)
class PolicyStatus(Record):
    """PolicyStatus is the answer of admin.policy.status."""

    #: judges what is opened now, and everything outside of sessions
    active: PolicyRevision
    #: others, by which open sessions are judged
    pinned: Tuple[PolicyRevision, ...]
    #: number that was ever active: nothing older is taken
    highest: Optional[int] = None
    #: one of which must have signed it
    keys: Optional[Tuple[str, ...]] = None
    #: the last candidate, if it was not taken
    refused: Optional[PolicyRefusal] = None
    #: where the next one is read; absent = there is none
    source: Optional[str] = None


@dataclass(frozen=True, repr=False)
class PolicyWorkers(Record):
    """PolicyWorkers are the processes that evaluate the policy in force, and nothing else."""

    processes: int
    #: that were ended, or ended, since the revision was loaded
    replaced: int
    #: that each may take beyond what it began with
    memory_bytes: int
    #: that one decision may take
    cpu_time_ns: int
    #: around each: seccomp, no_new_privs, …
    walls: Tuple[str, ...]
    #: why the last start of one failed
    trouble: Optional[str] = None


@dataclass(frozen=True, repr=False)
class Principal(Record):
    """Principal is who asks: the peer of the socket by the kernel's word, plus the scope that the caller
    declares."""

    uid: int
    gid: int
    groups: Optional[Tuple[int, ...]] = None
    scope: Optional[Scope] = None


@dataclass(frozen=True, repr=False)
class Process(Record):
    """Process is the record of an execution as get and list show it (R228)."""

    exec_id: str
    intent_id: str
    session_id: str
    principal: Principal
    state: str
    #: the beginning of it
    argv: Tuple[str, ...]
    queued_at_ns: int
    queued_at: str
    #: it waited for leave, or waits
    approval_id: Optional[str] = None
    duration_ns: Optional[int] = None
    ended_at: Optional[str] = None
    ended_at_ns: Optional[int] = None
    error_code: Optional[str] = None
    #: once it has exited by itself
    exit_code: Optional[int] = None
    #: of its last frame
    frame_seq: Optional[int] = None
    labels: Optional[Mapping[str, str]] = None
    paused: Optional[bool] = None
    #: of a final state: non_zero_exit, signal, oom, cpu_time, spawn, lost, or an error code
    reason: Optional[str] = None
    #: it has a terminal
    shell: Optional[bool] = None
    signal: Optional[str] = None
    started_at: Optional[str] = None
    started_at_ns: Optional[int] = None
    stderr_bytes: Optional[int] = None
    stdin_open: Optional[bool] = None
    #: written so far, or in all
    stdout_bytes: Optional[int] = None
    usage: Optional[Usage] = None


@dataclass(frozen=True, repr=False)
class ProcessCancel(Record):
    """ProcessCancel ends the whole tree of an execution: TERM, then KILL (host.process.cancel)."""

    exec_id: Optional[str] = None
    #: TERM to KILL; absent means the default, 0 at once
    grace_timeout_ns: Optional[int] = None
    intent_id: Optional[str] = None
    scope: Optional[Scope] = None
    #: false: answer cancel_requested without waiting for the end
    wait: Optional[bool] = None


@dataclass(frozen=True, repr=False)
class ProcessInput(Record):
    """ProcessInput writes to the stdin of an execution that was started with stdin_open
    (host.process.input)."""

    #: end of file after Data
    close: Optional[bool] = None
    #: inline_text, inline_bytes or secret_text
    data: Optional[Stdin] = None
    exec_id: Optional[str] = None
    #: the same again is written once: the answer says duplicate
    input_id: Optional[str] = None
    intent_id: Optional[str] = None
    scope: Optional[Scope] = None


@dataclass(frozen=True, repr=False)
class ProcessList(Record):
    """ProcessList is a page of executions, newest first."""

    processes: Tuple[Process, ...]
    #: cursor of the next page; absent on the last
    next: Optional[str] = None


@dataclass(frozen=True, repr=False)
class ProcessModify(Record):
    """ProcessModify changes a running execution (host.process.modify)."""

    #: nanoseconds from its start; bounded by the grant
    timeout_ns: int
    exec_id: Optional[str] = None
    intent_id: Optional[str] = None
    scope: Optional[Scope] = None


@dataclass(frozen=True, repr=False)
class ProcessSignal(Record):
    """ProcessSignal delivers one signal to one execution and promises nothing more (host.process.signal)."""

    signal: str
    exec_id: Optional[str] = None
    intent_id: Optional[str] = None
    scope: Optional[Scope] = None


@dataclass(frozen=True, repr=False)
class ProcessStop(Record):
    """ProcessStop cancels every live execution of the caller's that fits (host.process.stop, R246)."""

    grace_timeout_ns: Optional[int] = None
    labels: Optional[Mapping[str, str]] = None
    scope: Optional[Scope] = None
    session_id: Optional[str] = None


@dataclass(frozen=True, repr=False)
class ProcessTarget(Record):
    """ProcessTarget names an execution (host.process.pause, resume and delete)."""

    exec_id: Optional[str] = None
    intent_id: Optional[str] = None
    scope: Optional[Scope] = None


@dataclass(frozen=True, repr=False)
class Quiescence(Record):
    """Quiescence says what keeps the supervisor from being quiet (R134, R135)."""

    quiet: bool
    #: in flight, oldest first, of every principal
    intents: Tuple[Intent, ...]
    sessions: int
    executions: int
    draining: Optional[bool] = None


@dataclass(frozen=True, repr=False)
class Read(Record):
    """Read is the object of an operation without effect, and the filters of lists."""

    #: only what has not ended
    active: Optional[bool] = None
    #: cursor that an earlier answer gave: what follows it
    after: Optional[str] = None
    #: of this scope, as far as it is said
    agent_id: Optional[str] = None
    approval_id: Optional[str] = None
    blob_ref: Optional[str] = None
    chat_id: Optional[str] = None
    #: why something was refused, failed or was ended
    code: Optional[str] = None
    exec_id: Optional[str] = None
    #: of a recording: what was typed, too
    input: Optional[bool] = None
    intent_id: Optional[str] = None
    labels: Optional[Mapping[str, str]] = None
    limit: Optional[int] = None
    #: of output in one answer
    max_bytes: Optional[int] = None
    op: Optional[str] = None
    #: Of receipts.
    order: Optional[str] = None
    outcome: Optional[str] = None
    #: the receipt names it, or what lies below it
    path: Optional[str] = None
    #: a part of the name of a rule that decided, or of the code of a denial
    rule: Optional[str] = None
    session_id: Optional[str] = None
    #: settled then or later
    since_ns: Optional[int] = None
    state: Optional[str] = None
    #: of this user
    uid: Optional[int] = None
    #: settled before
    until_ns: Optional[int] = None
    #: long poll: how long to wait for something to say
    wait_ms: Optional[int] = None
    world_id: Optional[str] = None


@dataclass(frozen=True, repr=False)
class Receipt(Record):
    """Receipt is the one terminal answer to an operation, journaled before the caller sees it."""

    #: 1
    version: int
    intent_id: str
    op: str
    principal: Principal
    outcome: str
    #: derived for agent-os clients: ok, error, timeout (C11)
    receipt_status: str
    admitted_at_ns: int
    admitted_at: str
    settled_at_ns: int
    settled_at: str
    #: of one that had to wait for leave: who decided, and when
    approval: Optional[Approval] = None
    clamped: Optional[Tuple[Clamp, ...]] = None
    deny: Optional[Tuple[Deny, ...]] = None
    error_code: Optional[str] = None
    error_message: Optional[str] = None
    exec_id: Optional[str] = None
    #: of its last frame: there are so many
    frame_seq: Optional[int] = None
    idempotency_key: Optional[str] = None
    payload: Optional[Payload] = None
    policy: Optional[PolicyRef] = None
    requested_kind: Optional[str] = None
    session_id: Optional[str] = None
    timings: Optional[Tuple[Timing, ...]] = None
    warn: Optional[Tuple[str, ...]] = None


@dataclass(frozen=True, repr=False)
class ReceiptList(Record):
    """ReceiptList is a page of receipts, newest first unless the other order was asked for."""

    receipts: Tuple[Receipt, ...]
    #: cursor: behind it, oldest first, is what was settled later than all that there is
    head: Optional[str] = None
    #: there is something behind it
    more: Optional[bool] = None
    #: cursor: how far this page has looked
    next: Optional[str] = None


@dataclass(frozen=True, repr=False)
class Recording(Record):
    """Recording is what a shell looked like from its beginning on: an asciicast v2, for any player of those."""

    #: sha256:<hex> of the asciicast, with what was typed
    digest: str
    #: the asciicast: inline_text or a blob
    cast: Output
    events: int
    #: until the last event
    duration_ns: int
    #: what was typed was recorded
    input: Optional[bool] = None
    #: there was more than the grant has room for
    truncated: Optional[bool] = None


@dataclass(frozen=True, repr=False)
class Request(Record):
    """Request is one operation as asked: who asks, for what."""

    op: str
    principal: Principal
    #: "http"; other facades name themselves
    facade: str
    #: admin.policy.activate and preview
    activate: Optional[PolicyActivate] = None
    blob: Optional[BlobPut] = None
    cancel: Optional[ProcessCancel] = None
    close: Optional[SessionClose] = None
    #: host.process.signal
    deliver: Optional[ProcessSignal] = None
    drain: Optional[Drain] = None
    exec: Optional[Exec] = None
    #: host.fs.*
    file: Optional[FileTool] = None
    forward: Optional[SessionForward] = None
    #: Key makes an operation with effect happen once: asked again with the same key, scope and content, the
    #: answer is the first one's receipt, also across a restart.
    idempotency_key: Optional[str] = None
    input: Optional[ProcessInput] = None
    log: Optional[LogLevel] = None
    modify: Optional[ProcessModify] = None
    narrow: Optional[SessionNarrow] = None
    open: Optional[SessionOpen] = None
    #: host.process.pause, resume and delete
    process: Optional[ProcessTarget] = None
    #: of every other operation without effect
    read: Optional[Read] = None
    #: the alias that was used, if one was
    requested_kind: Optional[str] = None
    #: host.session.pause and resume
    session: Optional[SessionTarget] = None
    shell_attach: Optional[ShellAttach] = None
    shell_close: Optional[ShellClose] = None
    shell_input: Optional[ShellInput] = None
    shell_resize: Optional[ShellResize] = None
    shell_run: Optional[ShellRun] = None
    signal: Optional[SessionSignal] = None
    stop: Optional[ProcessStop] = None
    #: host.approval.approve and deny
    verdict: Optional[Verdict] = None
    #: host.workspace.diff, commit and discard
    workspace: Optional[Workspace] = None


@dataclass(frozen=True, repr=False)
class RequireApproval(Record):
    """RequireApproval is what policy says of an operation that it allows, and that may not be carried out
    before somebody gives leave (R091)."""

    #: shown to who is to decide
    reason: str
    #: from the request; who has not decided by then has denied
    timeout_ns: int
    #: the user who asks may give himself leave
    allow_own: Optional[bool] = None
    #: whose leave counts; absent leaves it to the policy of approvals
    approvers: Optional[Approvers] = None


@dataclass(frozen=True, repr=False)
class Reviewed(Record):
    """Reviewed is what leave is asked for."""

    intent_id: str
    #: secrets replaced by digests
    request: Request
    policy_digest: str
    ceiling_digest: str
    require_approval: RequireApproval
    #: of a file tool: what its paths lead to
    files: Optional[Tuple[ReviewedFile, ...]] = None
    #: of an open: the effective one
    grant: Optional[Grant] = None
    #: of an exec: tighter than the session's
    limits: Optional[Mapping[str, int]] = None
    #: of an exec: how it is kept
    output: Optional[str] = None
    #: what its host paths lead to
    sources: Optional[Mapping[str, Source]] = None


@dataclass(frozen=True, repr=False)
class ReviewedFile(Record):
    """ReviewedFile is a path inside as it was found."""

    path: str
    #: after symbolic links
    resolved: str
    through_link: Optional[bool] = None
    #: it is made, changed, moved or removed
    write: Optional[bool] = None


@dataclass(frozen=True, repr=False)
class Root(Record):
    """Root chooses the root file system: a tagged variant."""

    #: an unpacked root
    dir: Optional[RootDir] = None
    #: read-only view of the host's system directories
    host: Optional[Empty] = None
    #: only the named host paths, each digested
    paths: Optional[RootPaths] = None


@dataclass(frozen=True, repr=False)
class RootDir(Record):
    """RootDir is an unpacked root file system on the host, used read-only."""

    path: str


@dataclass(frozen=True, repr=False)
class RootPaths(Record):
    """RootPaths names host paths that alone exist inside, at the same place, read-only."""

    paths: Tuple[str, ...]


@dataclass(frozen=True, repr=False)
class Scope(Record):
    """Scope tells apart the agents that one host process serves."""

    agent_id: Optional[str] = None
    chat_id: Optional[str] = None
    world_id: Optional[str] = None


@dataclass(frozen=True, repr=False)
class Session(Record):
    """Session is a session as get and list show it."""

    session_id: str
    #: ready, quiesced (paused), closing, closed, error
    state: str
    principal: Principal
    policy_digest: str
    #: so far
    executions: int
    #: now, those that are queued included
    live_executions: int
    #: of its last event
    event_seq: int
    open_intent_id: str
    started_at_ns: int
    started_at: str
    #: layers that it is without
    degraded: Optional[Tuple[str, ...]] = None
    ended_at: Optional[str] = None
    ended_at_ns: Optional[int] = None
    env_names: Optional[Tuple[str, ...]] = None
    expires_at: Optional[str] = None
    expires_at_ns: Optional[int] = None
    grant: Optional[Grant] = None
    #: when it ends if nothing happens; grows with every activity
    idle_at_ns: Optional[int] = None
    labels: Optional[Mapping[str, str]] = None
    #: what it uses now, while it lives
    load: Optional[Load] = None
    #: how often a part of its network was taken away
    narrowed: Optional[int] = None
    #: of the executions that have ended
    network: Optional[Traffic] = None
    profile: Optional[str] = None
    reason: Optional[str] = None
    #: layers that cannot say what they refuse
    unreported_layers: Optional[Tuple[str, ...]] = None
    #: of the executions that have ended; of the whole session once it has
    usage: Optional[Usage] = None
    workdir: Optional[str] = None


@dataclass(frozen=True, repr=False)
class SessionClose(Record):
    """SessionClose ends a session: graceful is signal term, force is signal kill."""

    session_id: str
    grace_timeout_ns: Optional[int] = None
    #: "graceful" (default) or "force"
    mode: Optional[str] = None
    scope: Optional[Scope] = None


@dataclass(frozen=True, repr=False)
class SessionForward(Record):
    """SessionForward lets its caller reach a port on the loopback of a session (host.session.forward)."""

    session_id: str
    port: int
    scope: Optional[Scope] = None


@dataclass(frozen=True, repr=False)
class SessionList(Record):
    """SessionList is a page of sessions, newest first."""

    sessions: Tuple[Session, ...]


@dataclass(frozen=True, repr=False)
class SessionNarrow(Record):
    """SessionNarrow takes a part of a live session's network away (host.session.narrow)."""

    session_id: str
    #: no more than the session has
    network: GrantNetwork
    scope: Optional[Scope] = None


@dataclass(frozen=True, repr=False)
class SessionOpen(Record):
    """SessionOpen asks for a session (host.session.open)."""

    target: Target
    #: layers that the caller does without where the host lacks them
    accept_degraded: Optional[Tuple[str, ...]] = None
    #: absent means the grant's
    allow_background_processes: Optional[bool] = None
    #: without activity for so long, the session ends; 0 means the grant's
    idle_timeout_ns: Optional[int] = None
    #: shown to policy, filterable
    labels: Optional[Mapping[str, str]] = None
    limits: Optional[Limits] = None
    #: when the supervisor restarts: "adopt" (default) or "terminate"
    on_restart: Optional[str] = None
    #: a profile of the policy library; "" lets policy choose
    profile: Optional[str] = None
    scope: Optional[Scope] = None
    #: nanoseconds; 0 means the grant's
    session_ttl_ns: Optional[int] = None
    #: "canary": what must fail is tried from inside first
    verify: Optional[str] = None


@dataclass(frozen=True, repr=False)
class SessionSignal(Record):
    """SessionSignal delivers a signal to every live execution of a session; term and kill also end the session
    (C7)."""

    session_id: str
    signal: str
    #: TERM to KILL; absent means the default, 0 at once
    grace_timeout_ns: Optional[int] = None
    scope: Optional[Scope] = None


@dataclass(frozen=True, repr=False)
class SessionTarget(Record):
    """SessionTarget names a session: what host.session.pause freezes and resume thaws."""

    session_id: str
    scope: Optional[Scope] = None


@dataclass(frozen=True, repr=False)
class Setting(Record):
    """Setting is one setting of the supervisor: a flag of its program, or a member of its configuration."""

    name: str
    kind: str
    #: default, file, environment or flag
    from_: str = member(metadata={"name": "from"})
    #: none where it is not set
    values: Optional[Tuple[str, ...]] = None


@dataclass(frozen=True, repr=False)
class Settings(Record):
    """Settings is how the supervisor was set up, and what of it holds by now (admin.settings)."""

    #: that the log has now
    log_level: str
    #: by name
    settings: Tuple[Setting, ...]
    #: names of the variables that it heeds and was started with
    environment: Optional[Tuple[str, ...]] = None


@dataclass(frozen=True, repr=False)
class Shell(Record):
    """Shell is a shell as get shows it."""

    exec_id: str
    intent_id: str
    session_id: str
    principal: Principal
    state: str
    #: the beginning of it
    argv: Tuple[str, ...]
    queued_at_ns: int
    queued_at: str
    status: str
    status_number: int
    alive: bool
    cols: int
    rows: int
    #: the shell says where commands end; otherwise prompts are guessed at
    marked: bool
    queue: ShellQueue
    #: of the end of its output
    token: str
    #: of the first output that is kept
    first_token: str
    #: it waited for leave, or waits
    approval_id: Optional[str] = None
    #: that runs
    command: Optional[ShellCommand] = None
    #: the last that ended, oldest first
    commands: Optional[Tuple[ShellCommand, ...]] = None
    duration_ns: Optional[int] = None
    ended_at: Optional[str] = None
    ended_at_ns: Optional[int] = None
    error_code: Optional[str] = None
    #: once it has exited by itself
    exit_code: Optional[int] = None
    #: of its last frame
    frame_seq: Optional[int] = None
    labels: Optional[Mapping[str, str]] = None
    #: who are attached and watch
    observers: Optional[int] = None
    paused: Optional[bool] = None
    #: the last line, if it is one
    prompt: Optional[ShellPrompt] = None
    #: of a final state: non_zero_exit, signal, oom, cpu_time, spawn, lost, or an error code
    reason: Optional[str] = None
    #: it has a terminal
    shell: Optional[bool] = None
    signal: Optional[str] = None
    started_at: Optional[str] = None
    started_at_ns: Optional[int] = None
    stderr_bytes: Optional[int] = None
    stdin_open: Optional[bool] = None
    #: written so far, or in all
    stdout_bytes: Optional[int] = None
    usage: Optional[Usage] = None
    #: who is attached and types
    writer: Optional[str] = None


@dataclass(frozen=True, repr=False)
class ShellAction(Record):
    """ShellAction is what a hand at a terminal does beside typing."""

    type: str
    #: of RESIZE
    cols: Optional[int] = None
    rows: Optional[int] = None


@dataclass(frozen=True, repr=False)
class ShellAttach(Record):
    """ShellAttach sits down at a shell and types (host.shell.attach): one at a time."""

    #: the size of the terminal from here on; 0 leaves it
    cols: Optional[int] = None
    exec_id: Optional[str] = None
    intent_id: Optional[str] = None
    rows: Optional[int] = None
    scope: Optional[Scope] = None
    #: where somebody is attached who types: he is made an observer
    takeover: Optional[bool] = None


@dataclass(frozen=True, repr=False)
class ShellChunk(Record):
    """ShellChunk is output of a shell, up to where something is to be said of it."""

    #: of what follows it
    token: str
    #: of its first byte
    offset: int
    at_ns: Optional[int] = None
    bytes: Optional[builtins.bytes] = None
    #: of the command that ended with it
    command_id: Optional[str] = None
    #: and its exit code
    exit_code: Optional[int] = None
    #: a prompt ends with it
    prompt: Optional[ShellPrompt] = None
    #: bytes before this are not kept any more
    truncated: Optional[bool] = None


@dataclass(frozen=True, repr=False)
class ShellClose(Record):
    """ShellClose ends a shell (host.shell.close): graceful hangs up and kills what is left after the grace,
    force kills at once."""

    exec_id: Optional[str] = None
    #: absent means the default
    grace_timeout_ns: Optional[int] = None
    intent_id: Optional[str] = None
    #: "graceful" (default) or "force"
    mode: Optional[str] = None
    scope: Optional[Scope] = None


@dataclass(frozen=True, repr=False)
class ShellCommand(Record):
    """ShellCommand is a command in a shell, as far as the shell says where it begins and ends."""

    command_id: str
    #: its output: offsets
    from_: int = member(metadata={"name": "from"})
    ended_at_ns: Optional[int] = None
    exit_code: Optional[int] = None
    input_id: Optional[str] = None
    started_at_ns: Optional[int] = None
    #: once it has ended
    to: Optional[int] = None


@dataclass(frozen=True, repr=False)
class ShellInput(Record):
    """ShellInput types into a shell (host.shell.input): all of Data, then the actions in their order, and
    nobody else's between them."""

    actions: Optional[Tuple[ShellAction, ...]] = None
    #: inline_text, inline_bytes or secret_text; any bytes, as keys send them
    data: Optional[Stdin] = None
    exec_id: Optional[str] = None
    #: the same again is typed once: the answer says duplicate
    input_id: Optional[str] = None
    intent_id: Optional[str] = None
    scope: Optional[Scope] = None
    #: also where somebody is attached who types: he is made an observer
    takeover: Optional[bool] = None


@dataclass(frozen=True, repr=False)
class ShellOpen(Record):
    """An Exec of which the command need not be said: without one it is /bin/bash --login."""

    session_id: str
    argv: Optional[Tuple[str, ...]] = None
    #: relative resolves under the session's workdir
    cwd: Optional[str] = None
    env_patch: Optional[Mapping[str, EnvValue]] = None
    #: shown to policy, filterable
    labels: Optional[Mapping[str, str]] = None
    #: below the session's (R053)
    limits: Optional[Limits] = None
    max_inline_bytes: Optional[int] = None
    output_mode: Optional[str] = None
    #: inside paths returned as blobs once the command has ended
    outputs: Optional[Tuple[str, ...]] = None
    scope: Optional[Scope] = None
    stdin: Optional[Stdin] = None
    #: stdin stays open after what Stdin says, for host.process.input
    stdin_open: Optional[bool] = None
    #: alias of stdin.blob_ref (C28)
    stdin_ref: Optional[str] = None
    #: of host.shell.open alone
    terminal: Optional[Terminal] = None
    #: nanoseconds of wall time; 0 means the grant's
    timeout_ns: Optional[int] = None
    #: false: answer with the ids as soon as the intent is durable
    wait: Optional[bool] = None
    #: answer with the receipt, or after so long with the ids and the output so far
    wait_ms: Optional[int] = None


@dataclass(frozen=True, repr=False)
class ShellOutput(Record):
    """ShellOutput is the answer to host.shell.output, and what is sent of it as it comes."""

    exec_id: str
    session_id: str
    chunks: Tuple[ShellChunk, ...]
    #: of what follows the chunks
    token: str
    status: str
    status_number: int
    #: nothing follows, ever
    end: Optional[bool] = None
    receipt: Optional[Receipt] = None
    #: what followed the token that was asked for is not kept any more
    truncated: Optional[bool] = None


@dataclass(frozen=True, repr=False)
class ShellPrompt(Record):
    """ShellPrompt is what a shell, or a program in it, asks with."""

    #: without escape sequences
    text: str
    #: "mark": the shell said so. "pattern": the end of the output looks like one.
    source: str


@dataclass(frozen=True, repr=False)
class ShellQueue(Record):
    """ShellQueue is what waits to be typed."""

    #: "empty" or "busy"
    state: str
    bytes: Optional[int] = None
    requests: Optional[int] = None


@dataclass(frozen=True, repr=False)
class ShellResize(Record):
    """ShellResize changes the size of a shell's terminal (host.shell.resize)."""

    cols: int
    rows: int
    exec_id: Optional[str] = None
    intent_id: Optional[str] = None
    scope: Optional[Scope] = None


@dataclass(frozen=True, repr=False)
class ShellResult(Record):
    """ShellResult is the payload of the operations on a shell."""

    accepted: bool
    #: afterwards
    status: str
    status_number: int
    #: that were done
    actions: Optional[int] = None
    #: that were typed
    bytes: Optional[int] = None
    cols: Optional[int] = None
    #: of what was typed, if that has the end of a line
    command_id: Optional[str] = None
    duplicate: Optional[bool] = None
    error_code: Optional[str] = None
    exec_id: Optional[str] = None
    exit_code: Optional[int] = None
    rows: Optional[int] = None
    session_id: Optional[str] = None
    #: of a run: what the command wrote
    stdout: Optional[Output] = None
    #: of a close
    summary: Optional[str] = None
    timed_out: Optional[bool] = None
    #: of the output that follows
    token: Optional[str] = None
    #: of an attachment: sha256:<hex> of all that was typed
    typed: Optional[str] = None


@dataclass(frozen=True, repr=False)
class ShellRun(Record):
    """ShellRun has a shell that waits at its prompt run one command, and waits for its end (host.shell.run)."""

    #: of any number of lines
    command: str
    exec_id: Optional[str] = None
    #: the same again is run once: the answer says duplicate
    input_id: Optional[str] = None
    intent_id: Optional[str] = None
    scope: Optional[Scope] = None
    #: after which it is interrupted, as by CTRL_C; 0 means 10 minutes
    timeout_ns: Optional[int] = None


@dataclass(frozen=True, repr=False)
class SignalResult(Record):
    """SignalResult is the payload of host.session.signal."""

    #: signaled, not_found, already_exited, error
    status: str
    #: canonical: "TERM"
    signal: str
    ended_at: Optional[str] = None
    ended_at_ns: Optional[int] = None
    error_code: Optional[str] = None


@dataclass(frozen=True, repr=False)
class Snapshot(Record):
    """Snapshot is what the journal amounts to at one of its records: the digest of the canonical state, which
    anybody who has the journal can compute again."""

    #: of the journal that it covers
    records: int
    #: sha256:<hex> of the state
    digest: str
    size_bytes: int


@dataclass(frozen=True, repr=False)
class Source(Record):
    """Source is a host path as it was found under the caller's identity: what it led to, or why nowhere."""

    dev: Optional[int] = None
    error: Optional[str] = None
    ino: Optional[int] = None
    #: "dir" or "file"
    kind: Optional[str] = None
    #: permission bits
    mode: Optional[int] = None
    owner_uid: Optional[int] = None
    #: after symbolic links
    resolved: Optional[str] = None


@dataclass(frozen=True, repr=False)
class SpaceResult(Record):
    """SpaceResult is the payload of host.workspace.commit and discard, and the answer of diff."""

    #: committed, partial, discarded, ok, error
    status: str
    #: of commit: changes that the source has now
    applied: Optional[int] = None
    #: of diff
    changes: Optional[Tuple[Change, ...]] = None
    error_code: Optional[str] = None
    guest_path: Optional[str] = None
    #: of commit: paths that were asked for and did not change, the first of them
    left: Optional[Tuple[str, ...]] = None
    #: of commit: how many more of those
    left_dropped: Optional[int] = None
    #: there are changes after the last
    more: Optional[bool] = None


@dataclass(frozen=True, repr=False)
class Stdin(Record):
    """Stdin is what the command reads: a tagged variant."""

    blob_ref: Optional[BlobRef] = None
    inline_bytes: Optional[InlineBytes] = None
    inline_text: Optional[InlineText] = None
    #: set by Redact. Refused on input.
    secret_digest: Optional[str] = None
    #: reaches the process and nothing else
    secret_text: Optional[InlineText] = None


@dataclass(frozen=True, repr=False)
class Target(Record):
    """Target is what a session is built on: a tagged variant with one arm so far."""

    local: Optional[Local] = None


@dataclass(frozen=True, repr=False)
class Terminal(Record):
    """Terminal has an execution run on a terminal of its own (host.shell.open)."""

    #: 0 means 80
    cols: Optional[int] = None
    #: 0 means 24
    rows: Optional[int] = None
    #: What kind it is, for TERM: a name of terminfo's. "" leaves that to the environment, and otherwise it is
    #: xterm-256color.
    term: Optional[str] = None


@dataclass(frozen=True, repr=False)
class Timing(Record):
    """Timing is how long one stage took."""

    #: admit, resolve, policy, plan, intent, build, spawn, run, store
    stage: str
    ns: int


@dataclass(frozen=True, repr=False)
class Tool(Record):
    """Tool is one tool of a profile."""

    name: str
    description: str
    #: JSON Schema of its arguments
    input_schema: Any
    #: as the provider's API takes it among its tools
    definition: Any
    #: that a call can lead to; policy is asked about each
    operations: Tuple[str, ...]
    #: it can take away what was there
    destructive: Optional[bool] = None
    #: the same again changes nothing more
    idempotent: Optional[bool] = None
    read_only: Optional[bool] = None


@dataclass(frozen=True, repr=False)
class ToolAnswer(Record):
    """ToolAnswer is the answer to a call: what the model is given, and what it is made of."""

    #: as the provider takes it: function_call_output, custom_tool_call_output, tool_result or functionResponse
    result: Any
    tool: str
    #: what was asked for was done; a command that ended with a status of its own was run
    ok: bool
    #: ok, running, denied, error, or the status of the operation that says no
    status: str
    #: of the operations that the call led to, in order; reads have none
    receipts: Tuple[Receipt, ...]
    #: what the session's grant has of what was asked, by member
    allowed: Optional[Mapping[str, Any]] = None
    deny: Optional[Tuple[Deny, ...]] = None
    error_code: Optional[str] = None
    error_message: Optional[str] = None
    exec_id: Optional[str] = None
    exit_code: Optional[int] = None
    #: the execution goes on
    running: Optional[bool] = None
    #: the text leaves something out
    truncated: Optional[bool] = None


@dataclass(frozen=True, repr=False)
class ToolCall(Record):
    """ToolCall is a call of a tool in a session, as a model made it."""

    profile: str
    session_id: str
    #: as the provider has it: function_call, custom_tool_call, tool_use or functionCall
    call: Any
    scope: Optional[Scope] = None


@dataclass(frozen=True, repr=False)
class ToolCandidate(Record):
    """Candidate is a place in a file."""

    #: from 1
    line: int
    #: of its first line, shortened
    text: str


@dataclass(frozen=True, repr=False)
class ToolCatalogue(Record):
    """ToolCatalogue is the tools of a profile: what the models of one provider are given, so that they can use
    a session."""

    #: openai, anthropic, gemini or codex
    profile: str
    tools: Tuple[Tool, ...]


@dataclass(frozen=True, repr=False)
class ToolChange(Record):
    """Change is what became of one file: its digests before and after are evidence, and the precondition of the
    next change."""

    #: resolved; quoted where it must be
    path: str
    #: add, update, delete, move, mkdir
    kind: str
    after_sha256: Optional[str] = None
    before_sha256: Optional[str] = None
    #: of a move
    from_: Optional[str] = member(default=None, metadata={"name": "from"})
    #: after
    size_bytes: Optional[int] = None


@dataclass(frozen=True, repr=False)
class ToolChangeResult(Record):
    """ChangeResult is the result of host.fs.mkdir, move and remove."""

    status: str
    clamped: Optional[Tuple[ToolClamp, ...]] = None
    #: of mkdir
    created: Optional[bool] = None
    error_code: Optional[str] = None
    error_message: Optional[str] = None
    path: Optional[str] = None
    #: of remove: how many names
    removed: Optional[int] = None
    to: Optional[str] = None


@dataclass(frozen=True, repr=False)
class ToolClamp(Record):
    """Clamp says that a request-level limit was lowered (C17), or what stood in where the request named none
    (C18: source "runtime")."""

    field: str
    #: -1: without limit
    requested: int
    effective: int
    #: "capability" or "runtime"
    source: str


@dataclass(frozen=True, repr=False)
class ToolContent(Record):
    """Content is what a file is to hold: a tagged variant."""

    blob_ref: Optional[BlobRef] = None
    inline_bytes: Optional[InlineBytes] = None
    inline_text: Optional[InlineText] = None
    #: in its place, in records. Refused on input.
    secret_digest: Optional[str] = None
    #: reaches the file and no record; the answer has no digest of it
    secret_text: Optional[InlineText] = None


@dataclass(frozen=True, repr=False)
class ToolEdit(Record):
    """Edit replaces text in a file (host.fs.edit_file)."""

    old_string: str
    new_string: str
    dry_run: Optional[bool] = None
    #: without the fuzzy rules
    exact_only: Optional[bool] = None
    expected_sha256: Optional[str] = None
    #: alias of path (R199)
    file_path: Optional[str] = None
    path: Optional[str] = None
    #: the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not
    path_bytes: Optional[bytes] = None
    replace_all: Optional[bool] = None


@dataclass(frozen=True, repr=False)
class ToolEditResult(Record):
    """EditResult is the result of host.fs.edit_file."""

    status: str
    applied: Optional[bool] = None
    #: the first of them; of not_found, what comes nearest
    candidate_at: Optional[Tuple[ToolCandidate, ...]] = None
    #: places that match, when ambiguous
    candidates: Optional[int] = None
    change: Optional[ToolChange] = None
    clamped: Optional[Tuple[ToolClamp, ...]] = None
    error_code: Optional[str] = None
    error_message: Optional[str] = None
    #: "exact" or "fuzzy"
    match: Optional[str] = None
    #: that were applied (C29)
    replacements: Optional[int] = None
    summary_text: Optional[str] = None


@dataclass(frozen=True, repr=False)
class ToolGlob(Record):
    """Glob asks for the files whose paths a pattern matches (host.fs.glob), newest first."""

    pattern: str
    case_insensitive: Optional[bool] = None
    #: absent is 100
    max_results: Optional[int] = None
    output_mode: Optional[str] = None
    path: Optional[str] = None
    #: the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not
    path_bytes: Optional[bytes] = None
    respect_ignore: Optional[bool] = None


@dataclass(frozen=True, repr=False)
class ToolGlobResult(Record):
    """GlobResult is the result of host.fs.glob."""

    status: str
    clamped: Optional[Tuple[ToolClamp, ...]] = None
    #: before max_results
    count: Optional[int] = None
    error_code: Optional[str] = None
    error_message: Optional[str] = None
    overflow: Optional[ToolOverflow] = None
    #: one a line; never inline_bytes
    paths: Optional[ToolOutput] = None
    summary_text: Optional[str] = None
    truncated: Optional[bool] = None


@dataclass(frozen=True, repr=False)
class ToolGrep(Record):
    """Grep asks for the lines that a pattern matches (host.fs.grep)."""

    pattern: str
    after: Optional[int] = None
    #: lines of context
    before: Optional[int] = None
    case_insensitive: Optional[bool] = None
    fixed_strings: Optional[bool] = None
    #: without a slash it means any depth; "!" before it excludes
    glob_filter: Optional[str] = None
    #: matching lines of one file that count; 0 is all
    max_per_file: Optional[int] = None
    #: matching lines in the answer; absent is 100
    max_results: Optional[int] = None
    #: the pattern may match across lines, and . matches their ends
    multiline: Optional[bool] = None
    output_mode: Optional[str] = None
    path: Optional[str] = None
    #: the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not
    path_bytes: Optional[bytes] = None
    respect_ignore: Optional[bool] = None


@dataclass(frozen=True, repr=False)
class ToolGrepResult(Record):
    """GrepResult is the result of host.fs.grep."""

    status: str
    #: "native" or "ripgrep"
    backend: Optional[str] = None
    #: why that one; absent where only the native one is there
    backend_reason: Optional[str] = None
    clamped: Optional[Tuple[ToolClamp, ...]] = None
    error_code: Optional[str] = None
    error_message: Optional[str] = None
    #: that the worker itself has looked at
    files_scanned: Optional[int] = None
    #: before max_results
    match_count: Optional[int] = None
    #: path:line:text, context path-line-text; never inline_bytes
    matches: Optional[ToolOutput] = None
    overflow: Optional[ToolOverflow] = None
    summary_text: Optional[str] = None
    truncated: Optional[bool] = None


@dataclass(frozen=True, repr=False)
class ToolList(Record):
    """List asks for the names in a directory (host.fs.list_dir)."""

    #: absent is 100
    max_results: Optional[int] = None
    output_mode: Optional[str] = None
    path: Optional[str] = None
    #: the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not
    path_bytes: Optional[bytes] = None


@dataclass(frozen=True, repr=False)
class ToolListResult(Record):
    """ListResult is the result of host.fs.list_dir."""

    status: str
    clamped: Optional[Tuple[ToolClamp, ...]] = None
    #: before max_results
    count: Optional[int] = None
    #: one a line, "/" behind directories; never inline_bytes
    entries: Optional[ToolOutput] = None
    error_code: Optional[str] = None
    error_message: Optional[str] = None
    overflow: Optional[ToolOverflow] = None
    summary_text: Optional[str] = None
    truncated: Optional[bool] = None


@dataclass(frozen=True, repr=False)
class ToolMkdir(Record):
    """Mkdir makes a directory (host.fs.mkdir)."""

    #: and a directory that is there already is no conflict
    create_parents: Optional[bool] = None
    path: Optional[str] = None
    #: the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not
    path_bytes: Optional[bytes] = None


@dataclass(frozen=True, repr=False)
class ToolMove(Record):
    """Move renames a file, a directory or a link (host.fs.move)."""

    #: a file that is there is replaced; never a directory
    overwrite: Optional[bool] = None
    path: Optional[str] = None
    #: the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not
    path_bytes: Optional[bytes] = None
    to: Optional[str] = None
    to_bytes: Optional[bytes] = None


@dataclass(frozen=True, repr=False)
class ToolOutput(Record):
    """Output is bytes in the form that size and limits choose: a tagged variant."""

    blob: Optional[BlobOutput] = None
    inline_bytes: Optional[InlineBytes] = None
    inline_text: Optional[InlineText] = None


@dataclass(frozen=True, repr=False)
class ToolOverflow(Record):
    """Overflow says by how much a required inline output was too large."""

    size_bytes: int
    limit_bytes: int


@dataclass(frozen=True, repr=False)
class ToolPatch(Record):
    """Patch changes any number of files, all or none (host.fs.apply_patch)."""

    patch: ToolPatchText
    dry_run: Optional[bool] = None
    #: "v4a" (default) or "unified"
    patch_format: Optional[str] = None


@dataclass(frozen=True, repr=False)
class ToolPatchError(Record):
    """PatchError is one reason why a patch does not apply, with what is needed to mend it."""

    code: str
    message: str
    #: what is there
    actual: Optional[Tuple[str, ...]] = None
    #: lines that were looked for
    expected: Optional[Tuple[str, ...]] = None
    #: of the file, from 1
    hunk: Optional[int] = None
    #: where the file comes nearest to them
    nearest: Optional[ToolCandidate] = None
    #: in the patch, from 1
    patch_line: Optional[int] = None
    path: Optional[str] = None


@dataclass(frozen=True, repr=False)
class ToolPatchOps(Record):
    """PatchOps counts what a patch does."""

    add: int
    update: int
    delete: int
    move: int


@dataclass(frozen=True, repr=False)
class ToolPatchResult(Record):
    """PatchResult is the result of host.fs.apply_patch."""

    status: str
    #: in the order of the patch
    changed_paths: Optional[Tuple[str, ...]] = None
    changes: Optional[Tuple[ToolChange, ...]] = None
    clamped: Optional[Tuple[ToolClamp, ...]] = None
    dry_run: Optional[bool] = None
    error_code: Optional[str] = None
    error_message: Optional[str] = None
    #: bounded; the first says what Code says
    errors: Optional[Tuple[ToolPatchError, ...]] = None
    files_changed: Optional[int] = None
    ops: Optional[ToolPatchOps] = None
    summary_text: Optional[str] = None


@dataclass(frozen=True, repr=False)
class ToolPatchText(Record):
    """PatchText is a patch: a tagged variant."""

    blob_ref: Optional[BlobRef] = None
    inline_text: Optional[InlineText] = None


@dataclass(frozen=True, repr=False)
class ToolRead(Record):
    """Read asks for a file, or a range of it (host.fs.read_file)."""

    #: "utf8" (default) or "bytes"
    encoding: Optional[str] = None
    #: absent: all, up to the ceilings
    max_bytes: Optional[int] = None
    #: 0: all
    max_lines: Optional[int] = None
    offset_bytes: Optional[int] = None
    output_mode: Optional[str] = None
    path: Optional[str] = None
    #: the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not
    path_bytes: Optional[bytes] = None
    #: from 1; 0 does not count lines
    start_line: Optional[int] = None


@dataclass(frozen=True, repr=False)
class ToolReadResult(Record):
    """ReadResult is the result of host.fs.read_file."""

    status: str
    clamped: Optional[Tuple[ToolClamp, ...]] = None
    #: absent when the range is empty
    content: Optional[ToolOutput] = None
    error_code: Optional[str] = None
    error_message: Optional[str] = None
    #: of the range, when lines were asked for
    first_line: Optional[int] = None
    last_line: Optional[int] = None
    #: permission bits
    mode: Optional[int] = None
    mtime_ns: Optional[int] = None
    #: where the rest begins, when truncated
    next_offset_bytes: Optional[int] = None
    #: of require_inline
    overflow: Optional[ToolOverflow] = None
    #: resolved; quoted where it must be
    path: Optional[str] = None
    #: of the whole file, when the range is that
    sha256: Optional[str] = None
    #: of the whole file
    size_bytes: Optional[int] = None
    truncated: Optional[bool] = None


@dataclass(frozen=True, repr=False)
class ToolRemove(Record):
    """Remove removes a file, a link or a directory (host.fs.remove)."""

    path: Optional[str] = None
    #: the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not
    path_bytes: Optional[bytes] = None
    #: what is in a directory too
    recursive: Optional[bool] = None


@dataclass(frozen=True, repr=False)
class ToolResult(Record):
    """Result is what came of a Request."""

    op: str
    #: host.fs.mkdir, move and remove
    change: Optional[ToolChangeResult] = None
    edit: Optional[ToolEditResult] = None
    glob: Optional[ToolGlobResult] = None
    grep: Optional[ToolGrepResult] = None
    list: Optional[ToolListResult] = None
    patch: Optional[ToolPatchResult] = None
    read: Optional[ToolReadResult] = None
    #: host.fs.stat and host.fs.exists
    stat: Optional[ToolStatResult] = None
    write: Optional[ToolWriteResult] = None


@dataclass(frozen=True, repr=False)
class ToolStat(Record):
    """Stat asks what is at a path (host.fs.stat), or only whether there is anything (host.fs.exists)."""

    #: of a symbolic link at the path, the link itself
    link: Optional[bool] = None
    path: Optional[str] = None
    #: the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not
    path_bytes: Optional[bytes] = None


@dataclass(frozen=True, repr=False)
class ToolStatResult(Record):
    """StatResult is the result of host.fs.stat, and of host.fs.exists (Exists only)."""

    status: str
    clamped: Optional[Tuple[ToolClamp, ...]] = None
    error_code: Optional[str] = None
    error_message: Optional[str] = None
    exists: Optional[bool] = None
    gid: Optional[int] = None
    is_dir: Optional[bool] = None
    #: file, dir, symlink, fifo, socket, device
    kind: Optional[str] = None
    link_to: Optional[str] = None
    #: permission bits, with set-id and sticky
    mode: Optional[int] = None
    mtime_ns: Optional[int] = None
    path: Optional[str] = None
    size_bytes: Optional[int] = None
    uid: Optional[int] = None


@dataclass(frozen=True, repr=False)
class ToolWrite(Record):
    """Write gives a file its content (host.fs.write_file)."""

    content: ToolContent
    create_parents: Optional[bool] = None
    #: set or take the executable bits; absent leaves them
    executable: Optional[bool] = None
    #: of what is replaced, 64 hex digits; "absent" expects no file
    expected_sha256: Optional[str] = None
    #: "overwrite" (default) or "create_new"
    mode: Optional[str] = None
    path: Optional[str] = None
    #: the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not
    path_bytes: Optional[bytes] = None


@dataclass(frozen=True, repr=False)
class ToolWriteResult(Record):
    """WriteResult is the result of host.fs.write_file."""

    status: str
    change: Optional[ToolChange] = None
    clamped: Optional[Tuple[ToolClamp, ...]] = None
    created: Optional[bool] = None
    error_code: Optional[str] = None
    error_message: Optional[str] = None
    new_mtime_ns: Optional[int] = None
    written_bytes: Optional[int] = None


@dataclass(frozen=True, repr=False)
class Traffic(Record):
    """Traffic is what went through the relay of a session."""

    connections: int
    refused: int
    dns_questions: int
    sent_bytes: int
    received_bytes: int


@dataclass(frozen=True, repr=False)
class Usage(Record):
    """Usage is what an execution, or a session, used."""

    #: user and system time of the whole tree
    cpu_ns: Optional[int] = None
    #: sessions only
    executions: Optional[int] = None
    oom_kills: Optional[int] = None
    peak_memory_bytes: Optional[int] = None
    wall_ns: Optional[int] = None


@dataclass(frozen=True, repr=False)
class Verdict(Record):
    """Verdict decides about an operation that waits (host.approval.approve and deny)."""

    approval_id: str
    comment: Optional[str] = None
    #: token of what was reviewed; approve needs it
    review: Optional[str] = None
    scope: Optional[Scope] = None


@dataclass(frozen=True, repr=False)
class VerdictResult(Record):
    """VerdictResult is the payload of host.approval.approve and deny."""

    approval_id: str
    #: it had been decided so before
    again: Optional[bool] = None
    decided_by: Optional[Principal] = None
    error_code: Optional[str] = None
    #: of what waited
    intent_id: Optional[str] = None
    #: that it has now
    state: Optional[str] = None


@dataclass(frozen=True, repr=False)
class Version(Record):
    """Version says which supervisor answers and what it serves."""

    version: str
    #: 1
    api: int
    operations: Tuple[str, ...]


@dataclass(frozen=True, repr=False)
class Workspace(Record):
    """Workspace names an overlay of a session, and paths in it (host.workspace.diff, commit and discard)."""

    session_id: str
    #: of diff: the last path of the answer before
    after: Optional[str] = None
    #: of diff: its path_bytes, if it has them
    after_bytes: Optional[bytes] = None
    #: of the mount; "" where the session has one overlay
    guest_path: Optional[str] = None
    #: of diff: how many changes in one answer; 0 means 1000
    limit: Optional[int] = None
    #: of commit: relative to it, and all that is below them; absent is everything
    paths: Optional[Tuple[str, ...]] = None
    #: of commit: one beside each of paths, "" where that is UTF-8; paths have U+FFFD for what is not
    paths_bytes: Optional[Tuple[bytes, ...]] = None
    scope: Optional[Scope] = None
