// Made from docs/api/openapi.json by `go test ./supervisor/server -update`.

/** An integer of 64 bits: a bigint where a number could not hold it. */
export type Int64 = number | bigint;

/** Nanoseconds; of a time, since 1970. Always a bigint. */
export type Nanoseconds = bigint;

/** More may be added within v1. */
export type ApprovalState =
  | "approved"
  /** by who asked, or with the end of the session */
  | "canceled"
  | "denied"
  | "timed_out"
  /** what was reviewed is not what would be done any more */
  | "void"
  | "waiting"
  | (string & {});

/** More may be added within v1. */
export type Code =
  /** The execution has not ended; cancel it first. */
  | "active_process_conflict"
  /** A file that the patch adds is there already. */
  | "add_target_exists"
  /** The text to be replaced is in the file more than once; the payload says where. */
  | "ambiguous_matches"
  /** Somebody whose leave it needed has denied it; the receipt says who. */
  | "approval_denied"
  /** As many operations of the user wait for leave as may, or he has asked for leave too often in a short time. */
  | "approval_limit_exceeded"
  /** There is no such approval, or it is not for the caller to see. */
  | "approval_not_found"
  /** Nobody gives himself leave. */
  | "approval_own_request"
  /** The review token is not that of what waits; look at it again. */
  | "approval_review_mismatch"
  /** It has been decided already, and otherwise; the payload says how. */
  | "approval_settled"
  /** Leave was given, and what would be done is not any more what was reviewed; ask again. */
  | "approval_stale"
  /** Nobody gave leave in time. */
  | "approval_timeout"
  /** The caller is none of those whose leave it needs. */
  | "approver_not_allowed"
  /** An argument is longer than granted. */
  | "arg_length_exceeded"
  /** argv is empty, or its first element is. */
  | "argv_empty"
  /** An element of argv contains a NUL byte. */
  | "argv_invalid"
  /** More arguments than granted. */
  | "argv_limit_exceeded"
  /** Owner, mode or attributes of the file cannot be given to its successor; the file is what it was. */
  | "attributes_not_kept"
  /** Processes may not outlive the execution that started them. */
  | "background_not_allowed"
  /** The blob store failed. */
  | "blob_failed"
  /** The content does not have the digest that was announced. */
  | "blob_mismatch"
  /** The caller canceled the execution. */
  | "canceled"
  /** More than the operator's ceiling, whatever policy says. */
  | "ceiling_exceeded"
  /** Somebody else changed the file meanwhile; nothing was written. */
  | "changed_meanwhile"
  /** What lies below the overlay has changed in a way that cannot be written over; the payload says how far the commit came. */
  | "commit_conflict"
  /** The execution used as much processor time as it, or its session, may, and was killed. */
  | "cpu_time_exceeded"
  /** The two paths are on different file systems. */
  | "cross_device"
  /** The working directory of the execution is not granted. */
  | "cwd_not_allowed"
  /** The body is not a JSON document of the expected shape; the message names the place. */
  | "decode_error"
  /** Policy does not let the session do without this layer. */
  | "degraded_not_allowed"
  /** The file could not be removed. */
  | "delete_failed"
  /** A file that the patch deletes is not there. */
  | "delete_target_not_found"
  /** A destination of the network is not granted. */
  | "destination_not_allowed"
  /** The directory is not empty. */
  | "directory_not_empty"
  /** A private file system of the session was full. */
  | "disk_exceeded"
  /** The supervisor is being drained and takes no new sessions and executions. */
  | "draining"
  /** An object has the same member twice. */
  | "duplicate_member"
  /** The text to be replaced is not in the file; the payload names what comes nearest. */
  | "edit_target_not_found"
  /** More environment variables than granted. */
  | "env_limit_exceeded"
  /** More environment variables than granted to an execution. */
  | "env_patch_limit_exceeded"
  /** The name of an environment variable is not granted. */
  | "env_var_not_allowed"
  /** A call asked to be carried out outside of the sandbox. */
  | "escalation_not_allowed"
  /** The execution has ended. */
  | "exec_ended"
  /** A session, or a user over all sessions, has as many executions at once as it may, or their requests are too large together. */
  | "exec_limit_exceeded"
  /** There is no such execution, or it belongs to somebody else. */
  | "exec_not_found"
  /** The execution waits for its turn, or has not come to run yet. */
  | "exec_not_started"
  /** The grant has ended. */
  | "expired"
  /** There is something at the path already. */
  | "file_exists"
  /** The file is too large for a tool that needs the whole of it. */
  | "file_too_large"
  /** What serves the file tools inside ended, or could not be started; a change that was under way is whole or has not happened. */
  | "file_worker_lost"
  /** The file system refuses it to the identity of the session. */
  | "forbidden"
  /** The forwarding has ended, or there never was one of this name. */
  | "forward_ended"
  /** The port is not one that the grant opens to the owner of the session. */
  | "forward_not_allowed"
  /** No file tool of this class is granted. */
  | "fs_op_not_allowed"
  /** The search could not be carried out. */
  | "glob_failed"
  /** The position is not kept any more; the answer says what is. */
  | "gone"
  /** The search could not be carried out. */
  | "grep_failed"
  /** A hermetic session needs a root that its receipt can vouch for: dir or paths. */
  | "hermetic_root"
  /** The host name is not granted. */
  | "hostname_not_allowed"
  /** A hunk of the patch does not fit its file; the payload says where. Nothing was written. */
  | "hunk_rejected"
  /** The idempotency key was used for another request. */
  | "idempotency_conflict"
  /** The request with this idempotency key is in flight; its receipt can be waited for. */
  | "idempotency_in_flight"
  /** Inline was required, but policy wants blobs. */
  | "inline_forbidden_by_policy"
  /** The output does not fit inline, although inline was required; the exit code is real. */
  | "inline_required_too_large"
  /** The supervisor failed; its log says more. The operation is settled as faulted. */
  | "internal_error"
  /** The reference is not sha256: and 64 hexadecimal digits. */
  | "invalid_blob_ref"
  /** The content has no arm, or more than one. */
  | "invalid_content"
  /** The cursor is not one that was given out for this stream. */
  | "invalid_cursor"
  /** The working directory of the execution cannot be used. */
  | "invalid_cwd"
  /** The encoding is neither utf8 nor bytes. */
  | "invalid_encoding"
  /** An environment name or value cannot be passed to a process. */
  | "invalid_env"
  /** The policy of symbolic links is none of deny, within_root_only and allow. */
  | "invalid_follow_symlinks"
  /** The filter is no glob. */
  | "invalid_glob_filter"
  /** A header, or a parameter of the URL, cannot be used as it stands. */
  | "invalid_header"
  /** The text to be replaced is empty. */
  | "invalid_input_empty_old_string"
  /** Labels or scope are too many, too long, or contain characters that labels cannot. */
  | "invalid_label"
  /** The mode is none of those that the operation has. */
  | "invalid_mode"
  /** A mount is not ro, rw or overlay between two absolute, clean paths, or a target occurs twice. */
  | "invalid_mount"
  /** The network mode is none of none, egress and full. */
  | "invalid_network_mode"
  /** output_mode is neither auto nor require_inline. */
  | "invalid_output_mode"
  /** A parameter has a value that it cannot have; the message names it. */
  | "invalid_params"
  /** The patch is no text. */
  | "invalid_patch"
  /** The patch is empty. */
  | "invalid_patch_empty"
  /** The path is empty, too long, or has a NUL. */
  | "invalid_path"
  /** The pattern is no glob. */
  | "invalid_pattern"
  /** The pattern is no regular expression. */
  | "invalid_regex"
  /** The root has two arms, or a path that cannot be a root. */
  | "invalid_root"
  /** There is no signal of this name or number. */
  | "invalid_signal"
  /** The runner was asked for a sandbox that is not well formed; this is a fault of the supervisor. */
  | "invalid_spec"
  /** stdin has no arm, or more than one, or contradicts stdin_ref. */
  | "invalid_stdin"
  /** The reference of stdin is not sha256: and 64 hexadecimal digits. */
  | "invalid_stdin_ref"
  /** The token is not one that was given out for this shell. */
  | "invalid_token"
  /** The file, or the range of it, is no UTF-8 text. */
  | "invalid_utf8"
  /** The working directory is not an absolute path, or does not exist inside. */
  | "invalid_workdir"
  /** The file system failed. */
  | "io_error"
  /** What is at the path is a directory. */
  | "is_directory"
  /** The journal cannot be written; no further work is taken. */
  | "journal_failed"
  /** The size of the content has to be announced. */
  | "length_required"
  /** The directory could not be listed. */
  | "list_failed"
  /** The log was set up by whoever embeds the supervisor, and its level does not change. */
  | "log_fixed"
  /** The supervisor restarted, and the runner no longer had the execution; how it ended is unknown. */
  | "lost"
  /** The patch changes more files than granted. */
  | "max_changed_files_exceeded"
  /** The edit replaces more than granted. */
  | "max_edit_replacements_exceeded"
  /** The patch is larger than granted. */
  | "max_patch_bytes_exceeded"
  /** The search would look at more bytes than granted; what was found until then is told. */
  | "max_scan_bytes_exceeded"
  /** The search would look at more files than granted; what was found until then is told. */
  | "max_scan_files_exceeded"
  /** More bytes than granted to one file. */
  | "max_write_bytes_exceeded"
  /** The route exists, but not with this verb. */
  | "method_not_allowed"
  /** A record names a blob that is not there. */
  | "missing_cas_dependency"
  /** The inside path of a mount is not granted. */
  | "mount_guest_path_not_allowed"
  /** The host path of a mount is not granted. */
  | "mount_host_path_not_allowed"
  /** More mounts than granted. */
  | "mount_limit_exceeded"
  /** The mode of a mount is not granted. */
  | "mount_mode_not_allowed"
  /** A host path cannot be reached under the caller's own identity. */
  | "mount_source"
  /** A host path is no longer the object that was judged. */
  | "mount_source_changed"
  /** A path inside cannot be a mount target. */
  | "mount_target"
  /** Where the patch moves a file to, there is one already. */
  | "move_target_exists"
  /** The network of the session could not be had. */
  | "network_failed"
  /** The network mode is not granted. */
  | "network_mode_not_allowed"
  /** There is no overlay at this path inside, or more than one and none was named. */
  | "no_overlay"
  /** The execution is not a shell: it has no terminal. */
  | "no_shell"
  /** The file system is full, or a quota is reached; the file is what it was. */
  | "no_space"
  /** A component of the path, or what is at it, is no directory. */
  | "not_directory"
  /** Read back from the kernel, a layer was not in force; the session was torn down. */
  | "not_enforced"
  /** There is no such object, or it belongs to somebody else. */
  | "not_found"
  /** Nothing listens on the port inside the session. */
  | "not_listening"
  /** What was asked for is more than the session has. */
  | "not_narrower"
  /** The shell was not recorded, or its recording is not kept any more. */
  | "not_recorded"
  /** The path inside is not a regular file. */
  | "not_regular"
  /** The execution was killed by the memory ceiling. */
  | "oom_killed"
  /** The operation is not granted. */
  | "operation_not_allowed"
  /** The execution wrote more than is kept; the rest was counted and dropped. */
  | "output_exceeded"
  /** The output mode is not granted. */
  | "output_mode_not_allowed"
  /** A path of outputs is not granted. */
  | "output_not_allowed"
  /** The output could not be stored. */
  | "output_store_failed"
  /** The directory of the path does not exist, and was not to be made. */
  | "parent_not_found"
  /** The format of the patch is not granted. */
  | "patch_format_not_allowed"
  /** The patch cannot be read; the payload says where. */
  | "patch_parse_error"
  /** A path of the patch is not allowed. */
  | "path_forbidden"
  /** The path leads out of the roots that are granted, or where nothing may be changed. */
  | "path_not_allowed"
  /** The path does not exist inside. */
  | "path_not_found"
  /** The execution could not make a process: the ceiling of processes was reached. */
  | "pids_exceeded"
  /** A builtin function failed during the evaluation, so its result is not trusted. */
  | "policy.builtin_error"
  /** Policy did not allow it and gave no reason of its own. */
  | "policy.denied"
  /** The evaluation of policy failed. */
  | "policy.error"
  /** Policy granted more than the operator's ceiling, or more than was asked for. */
  | "policy.grant_exceeds"
  /** Neither policy nor the ceiling bounds something that every session has bounded. */
  | "policy.grant_incomplete"
  /** The request is larger than policy judges. */
  | "policy.input_too_large"
  /** The request cannot be shown to policy. */
  | "policy.malformed_input"
  /** The answer of policy has an unknown member, a wrong type or a value out of range. */
  | "policy.malformed_result"
  /** Policy allowed the session but granted nothing. */
  | "policy.no_grant"
  /** Rules of the policy contradict each other. */
  | "policy.not_one_result"
  /** The policy was late too often and is not asked until it is replaced. */
  | "policy.quarantined"
  /** The revision of the policy by which the session is judged is not there any more. */
  | "policy.revision_lost"
  /** The evaluation of policy took too long. */
  | "policy.timeout"
  /** Policy has no answer to the question. */
  | "policy.undefined"
  /** The process that evaluates policy ended over the question, gave what is no answer, or none was free. */
  | "policy.worker"
  /** Open intents keep the candidate from being activated strictly; the payload says which. Nothing has changed. */
  | "policy_blocked"
  /** The candidate is another one than was meant. Nothing has changed. */
  | "policy_changed"
  /** The policy came with the supervisor, or with its start, and there is no place to read another from. */
  | "policy_fixed"
  /** The candidate does not load, lacks what its contract asks for, or fails its own tests. Nothing has changed. */
  | "policy_refused"
  /** The candidate is older than a revision that was active. Nothing has changed. */
  | "policy_rollback"
  /** The candidate is not signed by a key that is trusted, or somebody else could have written it. Nothing has changed. */
  | "policy_untrusted"
  /** There is no such profile, or the principal may not use it. */
  | "profile_not_allowed"
  /** A path that must be protected cannot be: it is a symbolic link or a device, or cannot be reserved. */
  | "protected_path"
  /** The session runs as many executions as it may, and as many as may wait are waiting; or as much waits to be typed into a shell as may. */
  | "queue_full"
  /** The file could not be read. */
  | "read_failed"
  /** The file system is read-only. */
  | "read_only"
  /** What the operation returned cannot be recorded. It took place, and its receipt says no more. */
  | "receipt.invalid_payload"
  /** The root is not granted. */
  | "root_not_allowed"
  /** A step of building the sandbox failed; the message says which. */
  | "runner_failed"
  /** The runner cannot be reached, and with it every session is gone. */
  | "runner_unavailable"
  /** Policy requires a scope, and none was declared. */
  | "scope_required"
  /** The session has ended. */
  | "session_closed"
  /** The session has reached the end of its life. */
  | "session_expired"
  /** The session was idle for too long, and the execution ended with it. */
  | "session_idle"
  /** The limit of live sessions is reached. */
  | "session_limit_exceeded"
  /** There is no such session, or it belongs to somebody else. */
  | "session_not_found"
  /** The session is paused; resume it first. */
  | "session_paused"
  /** The file does not have the digest that was expected. */
  | "sha256_mismatch"
  /** The shell was not at its prompt in time, or does not say when it is. */
  | "shell_busy"
  /** The shell was closed by host.shell.close. */
  | "shell_closed"
  /** The grant has no shells; commands are another thing. */
  | "shell_not_allowed"
  /** The supervisor is stopping and takes no new work. */
  | "shutting_down"
  /** The signal is not granted. */
  | "signal_not_allowed"
  /** The command could not be started inside; the message has the reason. */
  | "spawn_failed"
  /** What is at the path could not be looked at. */
  | "stat_failed"
  /** The execution was not started with stdin_open, or its stdin has been closed. */
  | "stdin_closed"
  /** The command does not read; a part of the input was written, and the payload says how much. */
  | "stdin_full"
  /** There is no blob with the reference of stdin. */
  | "stdin_ref_not_found"
  /** The supervisor restarted while the operation was in flight. */
  | "supervisor_restarted"
  /** A symbolic link is on the way, and it is not followed. */
  | "symlink_not_allowed"
  /** The target is not granted. */
  | "target_not_allowed"
  /** No terminal can be had: the session has as many as it may, or the host has. */
  | "terminal_failed"
  /** The execution reached its time limit and was killed with its whole tree. */
  | "timeout"
  /** Objects and arrays are nested deeper than the limit. */
  | "too_deep"
  /** The body is larger than the limit. */
  | "too_large"
  /** The limit of connections is reached. */
  | "too_many_connections"
  /** The caller has as many requests under way, or as many bytes of them, as one user may; there is room when some are answered. */
  | "too_many_requests"
  /** The kernel did not say who the peer is. */
  | "unauthenticated"
  /** An object has a member that its type does not have. Names are case-sensitive. */
  | "unknown_member"
  /** There is no such route or operation. */
  | "unknown_method"
  /** The profile has no tool of this name. */
  | "unknown_tool"
  /** The kernel lacks what the grant demands; nothing was downgraded. */
  | "unsupported_by_host"
  /** The content type or content encoding is not accepted. */
  | "unsupported_media_type"
  /** The format of a patch is neither v4a nor unified. */
  | "unsupported_patch_format"
  /** The target names no arm, or one that this version does not build. */
  | "unsupported_target"
  /** A file that the patch updates is no UTF-8 text. */
  | "update_target_non_utf8"
  /** A file that the patch updates is not there. */
  | "update_target_not_found"
  /** The supervisor lost track of the execution; how it ended is unknown. */
  | "wait_failed"
  /** The working directory is not granted. */
  | "workdir_not_allowed"
  /** The file could not be written; it is what it was. */
  | "write_failed"
  /** Somebody is attached to the shell and types; takeover makes him an observer. */
  | "writer_held"
  | (string & {});

/** More may be added within v1. */
export type EventKind =
  /** the intent is durable; only the answer of the exec itself begins with it */
  | "accepted"
  /** a milestone, durable before it is shown */
  | "frame"
  /** what was asked for is not kept any more, and from where on there is something */
  | "gone"
  /** nothing has happened */
  | "keepalive"
  /** the reader is behind the command; nothing is left out */
  | "lagged"
  /** bytes of one stream, and their offset in it */
  | "output"
  /** the end; nothing follows */
  | "receipt"
  | (string & {});

/** More may be added within v1. */
export type FrameKind =
  /** a supervisor that came later goes on with it */
  | "host.exec.adopted"
  /** input was written */
  | "host.exec.input"
  | "host.exec.modified"
  | "host.exec.paused"
  /** once an interval, while it runs */
  | "host.exec.progress"
  | "host.exec.resumed"
  | "host.exec.started"
  /** its turn has come, if it had to wait */
  | "host.exec.starting"
  /** it was asked to end, and is killed when it does not */
  | "host.exec.stopping"
  /** of a shell, from here on */
  | "host.shell.state"
  | (string & {});

/** More may be added within v1. */
export type NoticeKind =
  /** An operation waits for leave, or does not any more: whose it is, and those who are named as approvers, are told. */
  | "APPROVAL"
  /** A configuration that the supervisor was told to read again was refused, and the one before goes on: to its own user. */
  | "CONFIGURATION"
  /** A frame or a receipt was not taken, or came after a gap; the reason says which. */
  | "DIAGNOSTIC"
  | "IDLE_TIMEOUT"
  | "IDLE_WARNING"
  /** the session's relay has died: it reaches nothing any more */
  | "NETWORK_LOST"
  /** with each progress frame and at the end */
  | "OUTPUT_AVAILABLE"
  /** a revision of the policy is active, or was refused: to who activates, and otherwise to the supervisor's own user */
  | "POLICY_REVISION"
  /** an operation was denied */
  | "POLICY_VIOLATION"
  /** one for each transition, in order (R229) */
  | "PROCESS_STATE"
  /** the reason is a ceiling that is near or was reached, or long_running, failure_rate or orphans */
  | "RESOURCE_THRESHOLD"
  /** opened, paused, resumed, closing, closed, error, adopted */
  | "SESSION_STATE"
  | (string & {});

/** More may be added within v1. */
export type Op =
  | "admin.drain"
  | "admin.log.level"
  | "admin.policy.activate"
  | "admin.policy.preview"
  | "admin.policy.status"
  | "admin.quiescence"
  | "admin.receipts"
  | "admin.settings"
  | "admin.snapshot"
  | "blob.get"
  | "blob.put"
  | "host.approval.approve"
  | "host.approval.deny"
  | "host.approval.get"
  | "host.approval.list"
  | "host.capabilities"
  | "host.events"
  | "host.exec"
  | "host.fs.apply_patch"
  | "host.fs.edit_file"
  | "host.fs.exists"
  | "host.fs.glob"
  | "host.fs.grep"
  | "host.fs.list_dir"
  | "host.fs.mkdir"
  | "host.fs.move"
  | "host.fs.read_file"
  | "host.fs.remove"
  | "host.fs.stat"
  | "host.fs.write_file"
  | "host.info"
  | "host.process.cancel"
  | "host.process.delete"
  | "host.process.get"
  | "host.process.input"
  | "host.process.list"
  | "host.process.modify"
  | "host.process.output"
  | "host.process.pause"
  | "host.process.resume"
  | "host.process.signal"
  | "host.process.stop"
  | "host.process.wait"
  | "host.process.watch"
  | "host.session.close"
  | "host.session.events"
  | "host.session.forward"
  | "host.session.get"
  | "host.session.list"
  | "host.session.narrow"
  | "host.session.open"
  | "host.session.pause"
  | "host.session.resume"
  | "host.session.signal"
  | "host.shell.attach"
  | "host.shell.close"
  | "host.shell.get"
  | "host.shell.input"
  | "host.shell.open"
  | "host.shell.output"
  | "host.shell.recording"
  | "host.shell.resize"
  | "host.shell.run"
  | "host.workspace.commit"
  | "host.workspace.diff"
  | "host.workspace.discard"
  | "intent.frames"
  | "intent.get"
  | "intent.list"
  | "policy.decide"
  | "receipt.checkpoint"
  | "receipt.get"
  | "receipt.list"
  | (string & {});

/** More may be added within v1. */
export type Outcome =
  /** policy or a ceiling said no; nothing was started */
  | "denied"
  /** the operation could not be carried out */
  | "faulted"
  /** the operation took place; its payload says how it went */
  | "ok"
  | (string & {});

/** More may be added within v1. */
export type SettingKind =
  /** unix:PATH, or a port of this machine */
  | "address"
  /** a URL, of which only the scheme is told: the rest can hold a credential */
  | "endpoint"
  /** of a user */
  | "name"
  /** of a file, a directory or a control group */
  | "path"
  /** one of a list, or a number, a time or yes and no */
  | "word"
  | (string & {});

/** More may be added within v1. */
export type ShellActionType =
  | "CTRL_C"
  | "CTRL_D"
  | "RESIZE"
  | "SIGINT"
  | "SIGKILL"
  | "SIGTERM"
  | (string & {});

/** More may be added within v1. */
export type ShellState =
  /** a command runs, or was typed */
  | "BUSY"
  /** it ended because it was to, or of itself */
  | "CLOSED"
  | "CLOSING"
  /** it was killed, or lost, and nobody had closed it */
  | "ERROR"
  /** its prompt is there */
  | "IDLE"
  /** it lives; whether it waits for a command is not known */
  | "RUNNING"
  | "UNKNOWN"
  | (string & {});

/** More may be added within v1. */
export type State =
  | "canceled"
  | "completed"
  | "failed"
  | "queued"
  | "running"
  | "starting"
  | "timed_out"
  | (string & {});

/** What the supervisor says of each code: its status, and its meaning. */
export const codes: Readonly<Record<string, { status: number; meaning: string }>> = {
  "active_process_conflict": { status: 409, meaning: "The execution has not ended; cancel it first." },
  "add_target_exists": { status: 409, meaning: "A file that the patch adds is there already." },
  "ambiguous_matches": { status: 409, meaning: "The text to be replaced is in the file more than once; the payload says where." },
  "approval_denied": { status: 403, meaning: "Somebody whose leave it needed has denied it; the receipt says who." },
  "approval_limit_exceeded": { status: 429, meaning: "As many operations of the user wait for leave as may, or he has asked for leave too often in a short time." },
  "approval_not_found": { status: 404, meaning: "There is no such approval, or it is not for the caller to see." },
  "approval_own_request": { status: 403, meaning: "Nobody gives himself leave." },
  "approval_review_mismatch": { status: 409, meaning: "The review token is not that of what waits; look at it again." },
  "approval_settled": { status: 409, meaning: "It has been decided already, and otherwise; the payload says how." },
  "approval_stale": { status: 403, meaning: "Leave was given, and what would be done is not any more what was reviewed; ask again." },
  "approval_timeout": { status: 403, meaning: "Nobody gave leave in time." },
  "approver_not_allowed": { status: 403, meaning: "The caller is none of those whose leave it needs." },
  "arg_length_exceeded": { status: 403, meaning: "An argument is longer than granted." },
  "argv_empty": { status: 400, meaning: "argv is empty, or its first element is." },
  "argv_invalid": { status: 400, meaning: "An element of argv contains a NUL byte." },
  "argv_limit_exceeded": { status: 403, meaning: "More arguments than granted." },
  "attributes_not_kept": { status: 422, meaning: "Owner, mode or attributes of the file cannot be given to its successor; the file is what it was." },
  "background_not_allowed": { status: 403, meaning: "Processes may not outlive the execution that started them." },
  "blob_failed": { status: 500, meaning: "The blob store failed." },
  "blob_mismatch": { status: 409, meaning: "The content does not have the digest that was announced." },
  "canceled": { status: 200, meaning: "The caller canceled the execution." },
  "ceiling_exceeded": { status: 403, meaning: "More than the operator's ceiling, whatever policy says." },
  "changed_meanwhile": { status: 409, meaning: "Somebody else changed the file meanwhile; nothing was written." },
  "commit_conflict": { status: 409, meaning: "What lies below the overlay has changed in a way that cannot be written over; the payload says how far the commit came." },
  "cpu_time_exceeded": { status: 200, meaning: "The execution used as much processor time as it, or its session, may, and was killed." },
  "cross_device": { status: 422, meaning: "The two paths are on different file systems." },
  "cwd_not_allowed": { status: 403, meaning: "The working directory of the execution is not granted." },
  "decode_error": { status: 400, meaning: "The body is not a JSON document of the expected shape; the message names the place." },
  "degraded_not_allowed": { status: 403, meaning: "Policy does not let the session do without this layer." },
  "delete_failed": { status: 500, meaning: "The file could not be removed." },
  "delete_target_not_found": { status: 404, meaning: "A file that the patch deletes is not there." },
  "destination_not_allowed": { status: 403, meaning: "A destination of the network is not granted." },
  "directory_not_empty": { status: 409, meaning: "The directory is not empty." },
  "disk_exceeded": { status: 200, meaning: "A private file system of the session was full." },
  "draining": { status: 503, meaning: "The supervisor is being drained and takes no new sessions and executions." },
  "duplicate_member": { status: 400, meaning: "An object has the same member twice." },
  "edit_target_not_found": { status: 404, meaning: "The text to be replaced is not in the file; the payload names what comes nearest." },
  "env_limit_exceeded": { status: 403, meaning: "More environment variables than granted." },
  "env_patch_limit_exceeded": { status: 403, meaning: "More environment variables than granted to an execution." },
  "env_var_not_allowed": { status: 403, meaning: "The name of an environment variable is not granted." },
  "escalation_not_allowed": { status: 403, meaning: "A call asked to be carried out outside of the sandbox." },
  "exec_ended": { status: 409, meaning: "The execution has ended." },
  "exec_limit_exceeded": { status: 429, meaning: "A session, or a user over all sessions, has as many executions at once as it may, or their requests are too large together." },
  "exec_not_found": { status: 404, meaning: "There is no such execution, or it belongs to somebody else." },
  "exec_not_started": { status: 409, meaning: "The execution waits for its turn, or has not come to run yet." },
  "expired": { status: 403, meaning: "The grant has ended." },
  "file_exists": { status: 409, meaning: "There is something at the path already." },
  "file_too_large": { status: 413, meaning: "The file is too large for a tool that needs the whole of it." },
  "file_worker_lost": { status: 503, meaning: "What serves the file tools inside ended, or could not be started; a change that was under way is whole or has not happened." },
  "forbidden": { status: 403, meaning: "The file system refuses it to the identity of the session." },
  "forward_ended": { status: 404, meaning: "The forwarding has ended, or there never was one of this name." },
  "forward_not_allowed": { status: 403, meaning: "The port is not one that the grant opens to the owner of the session." },
  "fs_op_not_allowed": { status: 403, meaning: "No file tool of this class is granted." },
  "glob_failed": { status: 500, meaning: "The search could not be carried out." },
  "gone": { status: 410, meaning: "The position is not kept any more; the answer says what is." },
  "grep_failed": { status: 500, meaning: "The search could not be carried out." },
  "hermetic_root": { status: 403, meaning: "A hermetic session needs a root that its receipt can vouch for: dir or paths." },
  "hostname_not_allowed": { status: 403, meaning: "The host name is not granted." },
  "hunk_rejected": { status: 409, meaning: "A hunk of the patch does not fit its file; the payload says where. Nothing was written." },
  "idempotency_conflict": { status: 409, meaning: "The idempotency key was used for another request." },
  "idempotency_in_flight": { status: 409, meaning: "The request with this idempotency key is in flight; its receipt can be waited for." },
  "inline_forbidden_by_policy": { status: 403, meaning: "Inline was required, but policy wants blobs." },
  "inline_required_too_large": { status: 422, meaning: "The output does not fit inline, although inline was required; the exit code is real." },
  "internal_error": { status: 500, meaning: "The supervisor failed; its log says more. The operation is settled as faulted." },
  "invalid_blob_ref": { status: 400, meaning: "The reference is not sha256: and 64 hexadecimal digits." },
  "invalid_content": { status: 400, meaning: "The content has no arm, or more than one." },
  "invalid_cursor": { status: 400, meaning: "The cursor is not one that was given out for this stream." },
  "invalid_cwd": { status: 400, meaning: "The working directory of the execution cannot be used." },
  "invalid_encoding": { status: 400, meaning: "The encoding is neither utf8 nor bytes." },
  "invalid_env": { status: 400, meaning: "An environment name or value cannot be passed to a process." },
  "invalid_follow_symlinks": { status: 400, meaning: "The policy of symbolic links is none of deny, within_root_only and allow." },
  "invalid_glob_filter": { status: 400, meaning: "The filter is no glob." },
  "invalid_header": { status: 400, meaning: "A header, or a parameter of the URL, cannot be used as it stands." },
  "invalid_input_empty_old_string": { status: 400, meaning: "The text to be replaced is empty." },
  "invalid_label": { status: 400, meaning: "Labels or scope are too many, too long, or contain characters that labels cannot." },
  "invalid_mode": { status: 400, meaning: "The mode is none of those that the operation has." },
  "invalid_mount": { status: 400, meaning: "A mount is not ro, rw or overlay between two absolute, clean paths, or a target occurs twice." },
  "invalid_network_mode": { status: 400, meaning: "The network mode is none of none, egress and full." },
  "invalid_output_mode": { status: 400, meaning: "output_mode is neither auto nor require_inline." },
  "invalid_params": { status: 400, meaning: "A parameter has a value that it cannot have; the message names it." },
  "invalid_patch": { status: 400, meaning: "The patch is no text." },
  "invalid_patch_empty": { status: 400, meaning: "The patch is empty." },
  "invalid_path": { status: 400, meaning: "The path is empty, too long, or has a NUL." },
  "invalid_pattern": { status: 400, meaning: "The pattern is no glob." },
  "invalid_regex": { status: 400, meaning: "The pattern is no regular expression." },
  "invalid_root": { status: 400, meaning: "The root has two arms, or a path that cannot be a root." },
  "invalid_signal": { status: 400, meaning: "There is no signal of this name or number." },
  "invalid_spec": { status: 500, meaning: "The runner was asked for a sandbox that is not well formed; this is a fault of the supervisor." },
  "invalid_stdin": { status: 400, meaning: "stdin has no arm, or more than one, or contradicts stdin_ref." },
  "invalid_stdin_ref": { status: 400, meaning: "The reference of stdin is not sha256: and 64 hexadecimal digits." },
  "invalid_token": { status: 400, meaning: "The token is not one that was given out for this shell." },
  "invalid_utf8": { status: 422, meaning: "The file, or the range of it, is no UTF-8 text." },
  "invalid_workdir": { status: 400, meaning: "The working directory is not an absolute path, or does not exist inside." },
  "io_error": { status: 500, meaning: "The file system failed." },
  "is_directory": { status: 422, meaning: "What is at the path is a directory." },
  "journal_failed": { status: 503, meaning: "The journal cannot be written; no further work is taken." },
  "length_required": { status: 411, meaning: "The size of the content has to be announced." },
  "list_failed": { status: 500, meaning: "The directory could not be listed." },
  "log_fixed": { status: 409, meaning: "The log was set up by whoever embeds the supervisor, and its level does not change." },
  "lost": { status: 503, meaning: "The supervisor restarted, and the runner no longer had the execution; how it ended is unknown." },
  "max_changed_files_exceeded": { status: 403, meaning: "The patch changes more files than granted." },
  "max_edit_replacements_exceeded": { status: 403, meaning: "The edit replaces more than granted." },
  "max_patch_bytes_exceeded": { status: 403, meaning: "The patch is larger than granted." },
  "max_scan_bytes_exceeded": { status: 403, meaning: "The search would look at more bytes than granted; what was found until then is told." },
  "max_scan_files_exceeded": { status: 403, meaning: "The search would look at more files than granted; what was found until then is told." },
  "max_write_bytes_exceeded": { status: 403, meaning: "More bytes than granted to one file." },
  "method_not_allowed": { status: 405, meaning: "The route exists, but not with this verb." },
  "missing_cas_dependency": { status: 500, meaning: "A record names a blob that is not there." },
  "mount_guest_path_not_allowed": { status: 403, meaning: "The inside path of a mount is not granted." },
  "mount_host_path_not_allowed": { status: 403, meaning: "The host path of a mount is not granted." },
  "mount_limit_exceeded": { status: 403, meaning: "More mounts than granted." },
  "mount_mode_not_allowed": { status: 403, meaning: "The mode of a mount is not granted." },
  "mount_source": { status: 422, meaning: "A host path cannot be reached under the caller's own identity." },
  "mount_source_changed": { status: 409, meaning: "A host path is no longer the object that was judged." },
  "mount_target": { status: 422, meaning: "A path inside cannot be a mount target." },
  "move_target_exists": { status: 409, meaning: "Where the patch moves a file to, there is one already." },
  "network_failed": { status: 502, meaning: "The network of the session could not be had." },
  "network_mode_not_allowed": { status: 403, meaning: "The network mode is not granted." },
  "no_overlay": { status: 404, meaning: "There is no overlay at this path inside, or more than one and none was named." },
  "no_shell": { status: 409, meaning: "The execution is not a shell: it has no terminal." },
  "no_space": { status: 507, meaning: "The file system is full, or a quota is reached; the file is what it was." },
  "not_directory": { status: 422, meaning: "A component of the path, or what is at it, is no directory." },
  "not_enforced": { status: 502, meaning: "Read back from the kernel, a layer was not in force; the session was torn down." },
  "not_found": { status: 404, meaning: "There is no such object, or it belongs to somebody else." },
  "not_listening": { status: 409, meaning: "Nothing listens on the port inside the session." },
  "not_narrower": { status: 403, meaning: "What was asked for is more than the session has." },
  "not_recorded": { status: 404, meaning: "The shell was not recorded, or its recording is not kept any more." },
  "not_regular": { status: 422, meaning: "The path inside is not a regular file." },
  "oom_killed": { status: 200, meaning: "The execution was killed by the memory ceiling." },
  "operation_not_allowed": { status: 403, meaning: "The operation is not granted." },
  "output_exceeded": { status: 200, meaning: "The execution wrote more than is kept; the rest was counted and dropped." },
  "output_mode_not_allowed": { status: 403, meaning: "The output mode is not granted." },
  "output_not_allowed": { status: 403, meaning: "A path of outputs is not granted." },
  "output_store_failed": { status: 500, meaning: "The output could not be stored." },
  "parent_not_found": { status: 404, meaning: "The directory of the path does not exist, and was not to be made." },
  "patch_format_not_allowed": { status: 403, meaning: "The format of the patch is not granted." },
  "patch_parse_error": { status: 422, meaning: "The patch cannot be read; the payload says where." },
  "path_forbidden": { status: 403, meaning: "A path of the patch is not allowed." },
  "path_not_allowed": { status: 403, meaning: "The path leads out of the roots that are granted, or where nothing may be changed." },
  "path_not_found": { status: 404, meaning: "The path does not exist inside." },
  "pids_exceeded": { status: 200, meaning: "The execution could not make a process: the ceiling of processes was reached." },
  "policy.builtin_error": { status: 403, meaning: "A builtin function failed during the evaluation, so its result is not trusted." },
  "policy.denied": { status: 403, meaning: "Policy did not allow it and gave no reason of its own." },
  "policy.error": { status: 403, meaning: "The evaluation of policy failed." },
  "policy.grant_exceeds": { status: 403, meaning: "Policy granted more than the operator's ceiling, or more than was asked for." },
  "policy.grant_incomplete": { status: 403, meaning: "Neither policy nor the ceiling bounds something that every session has bounded." },
  "policy.input_too_large": { status: 403, meaning: "The request is larger than policy judges." },
  "policy.malformed_input": { status: 403, meaning: "The request cannot be shown to policy." },
  "policy.malformed_result": { status: 403, meaning: "The answer of policy has an unknown member, a wrong type or a value out of range." },
  "policy.no_grant": { status: 403, meaning: "Policy allowed the session but granted nothing." },
  "policy.not_one_result": { status: 403, meaning: "Rules of the policy contradict each other." },
  "policy.quarantined": { status: 403, meaning: "The policy was late too often and is not asked until it is replaced." },
  "policy.revision_lost": { status: 403, meaning: "The revision of the policy by which the session is judged is not there any more." },
  "policy.timeout": { status: 403, meaning: "The evaluation of policy took too long." },
  "policy.undefined": { status: 403, meaning: "Policy has no answer to the question." },
  "policy.worker": { status: 403, meaning: "The process that evaluates policy ended over the question, gave what is no answer, or none was free." },
  "policy_blocked": { status: 409, meaning: "Open intents keep the candidate from being activated strictly; the payload says which. Nothing has changed." },
  "policy_changed": { status: 409, meaning: "The candidate is another one than was meant. Nothing has changed." },
  "policy_fixed": { status: 409, meaning: "The policy came with the supervisor, or with its start, and there is no place to read another from." },
  "policy_refused": { status: 422, meaning: "The candidate does not load, lacks what its contract asks for, or fails its own tests. Nothing has changed." },
  "policy_rollback": { status: 409, meaning: "The candidate is older than a revision that was active. Nothing has changed." },
  "policy_untrusted": { status: 422, meaning: "The candidate is not signed by a key that is trusted, or somebody else could have written it. Nothing has changed." },
  "profile_not_allowed": { status: 403, meaning: "There is no such profile, or the principal may not use it." },
  "protected_path": { status: 422, meaning: "A path that must be protected cannot be: it is a symbolic link or a device, or cannot be reserved." },
  "queue_full": { status: 429, meaning: "The session runs as many executions as it may, and as many as may wait are waiting; or as much waits to be typed into a shell as may." },
  "read_failed": { status: 500, meaning: "The file could not be read." },
  "read_only": { status: 403, meaning: "The file system is read-only." },
  "receipt.invalid_payload": { status: 500, meaning: "What the operation returned cannot be recorded. It took place, and its receipt says no more." },
  "root_not_allowed": { status: 403, meaning: "The root is not granted." },
  "runner_failed": { status: 502, meaning: "A step of building the sandbox failed; the message says which." },
  "runner_unavailable": { status: 503, meaning: "The runner cannot be reached, and with it every session is gone." },
  "scope_required": { status: 403, meaning: "Policy requires a scope, and none was declared." },
  "session_closed": { status: 409, meaning: "The session has ended." },
  "session_expired": { status: 409, meaning: "The session has reached the end of its life." },
  "session_idle": { status: 200, meaning: "The session was idle for too long, and the execution ended with it." },
  "session_limit_exceeded": { status: 429, meaning: "The limit of live sessions is reached." },
  "session_not_found": { status: 404, meaning: "There is no such session, or it belongs to somebody else." },
  "session_paused": { status: 409, meaning: "The session is paused; resume it first." },
  "sha256_mismatch": { status: 409, meaning: "The file does not have the digest that was expected." },
  "shell_busy": { status: 409, meaning: "The shell was not at its prompt in time, or does not say when it is." },
  "shell_closed": { status: 200, meaning: "The shell was closed by host.shell.close." },
  "shell_not_allowed": { status: 403, meaning: "The grant has no shells; commands are another thing." },
  "shutting_down": { status: 503, meaning: "The supervisor is stopping and takes no new work." },
  "signal_not_allowed": { status: 403, meaning: "The signal is not granted." },
  "spawn_failed": { status: 422, meaning: "The command could not be started inside; the message has the reason." },
  "stat_failed": { status: 500, meaning: "What is at the path could not be looked at." },
  "stdin_closed": { status: 409, meaning: "The execution was not started with stdin_open, or its stdin has been closed." },
  "stdin_full": { status: 429, meaning: "The command does not read; a part of the input was written, and the payload says how much." },
  "stdin_ref_not_found": { status: 404, meaning: "There is no blob with the reference of stdin." },
  "supervisor_restarted": { status: 503, meaning: "The supervisor restarted while the operation was in flight." },
  "symlink_not_allowed": { status: 403, meaning: "A symbolic link is on the way, and it is not followed." },
  "target_not_allowed": { status: 403, meaning: "The target is not granted." },
  "terminal_failed": { status: 429, meaning: "No terminal can be had: the session has as many as it may, or the host has." },
  "timeout": { status: 200, meaning: "The execution reached its time limit and was killed with its whole tree." },
  "too_deep": { status: 400, meaning: "Objects and arrays are nested deeper than the limit." },
  "too_large": { status: 413, meaning: "The body is larger than the limit." },
  "too_many_connections": { status: 503, meaning: "The limit of connections is reached." },
  "too_many_requests": { status: 429, meaning: "The caller has as many requests under way, or as many bytes of them, as one user may; there is room when some are answered." },
  "unauthenticated": { status: 401, meaning: "The kernel did not say who the peer is." },
  "unknown_member": { status: 400, meaning: "An object has a member that its type does not have. Names are case-sensitive." },
  "unknown_method": { status: 404, meaning: "There is no such route or operation." },
  "unknown_tool": { status: 404, meaning: "The profile has no tool of this name." },
  "unsupported_by_host": { status: 501, meaning: "The kernel lacks what the grant demands; nothing was downgraded." },
  "unsupported_media_type": { status: 415, meaning: "The content type or content encoding is not accepted." },
  "unsupported_patch_format": { status: 400, meaning: "The format of a patch is neither v4a nor unified." },
  "unsupported_target": { status: 422, meaning: "The target names no arm, or one that this version does not build." },
  "update_target_non_utf8": { status: 422, meaning: "A file that the patch updates is no UTF-8 text." },
  "update_target_not_found": { status: 404, meaning: "A file that the patch updates is not there." },
  "wait_failed": { status: 502, meaning: "The supervisor lost track of the execution; how it ended is unknown." },
  "workdir_not_allowed": { status: 403, meaning: "The working directory is not granted." },
  "write_failed": { status: 500, meaning: "The file could not be written; it is what it was." },
  "writer_held": { status: 409, meaning: "Somebody is attached to the shell and types; takeover makes him an observer." },
};

/** Approval is an operation that waits for leave, or waited for it. */
export interface Approval {
  /** who asks may decide */
  allow_own?: boolean;
  approval_id: string;
  /** absent: policy knows */
  approvers?: Approvers;
  /** of an exec: the beginning */
  argv?: string[];
  asked_at: string;
  asked_at_ns: Nanoseconds;
  comment?: string;
  deadline: string;
  deadline_ns: Nanoseconds;
  decided_at?: string;
  decided_at_ns?: Nanoseconds;
  /** absent where nobody did: time or the end of a session */
  decided_by?: Principal;
  /** intent of the decision */
  decided_in?: string;
  exec_id?: string;
  intent_id: string;
  op: Op;
  /** who asks */
  principal: Principal;
  /** policy's, for asking */
  reason: string;
  /** sha256:<hex> of what leave is asked for: request, facts, policy and what it would give */
  review: string;
  /** of host.approval.get */
  reviewed?: Reviewed;
  session_id?: string;
  state: ApprovalState;
}

/** ApprovalList is a page of approvals, in the order in which they last changed. */
export interface ApprovalList {
  approvals: Approval[];
  next: string;
}

/** Approvers names users. */
export interface Approvers {
  /** primary or supplementary */
  gids?: number[];
  uids?: number[];
}

/** Artifact is a file of the session that was returned as a blob. */
export interface Artifact {
  blob_ref?: string;
  error_code?: Code;
  /** permission bits */
  mode: number;
  path: string;
  size_bytes: Int64;
}

/** Ask is the body of policy.decide: an operation and its parameters. */
export interface Ask {
  /** admin.policy.activate and preview */
  activate?: PolicyActivate;
  cancel?: ProcessCancel;
  close?: SessionClose;
  /** host.process.signal */
  deliver?: ProcessSignal;
  drain?: Drain;
  exec?: Exec;
  forward?: SessionForward;
  input?: ProcessInput;
  log?: LogLevel;
  modify?: ProcessModify;
  narrow?: SessionNarrow;
  op: Op;
  open?: SessionOpen;
  /** host.process.pause, resume and delete */
  process?: ProcessTarget;
  /** host.session.pause and resume */
  session?: SessionTarget;
  signal?: SessionSignal;
  stop?: ProcessStop;
  /** host.approval.approve and deny */
  verdict?: Verdict;
  /** host.workspace.diff, commit and discard */
  workspace?: Workspace;
}

/** Blob is an output that is too large to be in the document. */
export interface BlobOutput {
  blob_ref: string;
  preview_bytes?: Uint8Array;
  size_bytes: Int64;
}

/** BlobPut stores content. */
export interface BlobPut {
  /** expected; a mismatch is refused */
  blob_ref?: string;
  size_bytes: Int64;
}

/** BlobRef names a blob by content. */
export interface BlobRef {
  /** sha256:<64 hex> */
  blob_ref: string;
}

/** BlobResult is the payload of blob.put. */
export interface BlobResult {
  blob_ref: string;
  size_bytes: Int64;
}

/** Canary is one thing that was tried from inside before the session was ready. */
export interface Canary {
  got: string;
  name: string;
  /** an errno's name, "ok" or "empty"; or "left out: " and why it was not tried, in got too */
  want: string;
}

/** Capabilities is the answer of host.capabilities: what a session can be held by here, before one is asked for. */
export interface Capabilities {
  arch: string;
  /** each that a session or an execution can have */
  ceilings: CeilingKind[];
  /** layout: "v1", "v2" or "hybrid" */
  cgroup: string;
  /** layers that a session may be without, if its caller and policy accept it */
  degradable: string[];
  /** those of them that are not there: an open has to accept them */
  degraded?: string[];
  kernel: string;
  layers: Layer[];
  /** required layers that are not there: each open is refused */
  missing?: string[];
  /** "overlay" among them */
  mount_modes: string[];
  /** modes */
  networks: string[];
  /** kinds */
  roots: string[];
  seccomp_profiles: string[];
  /** no required layer is missing */
  sessions: boolean;
}

/** Ceiling is the operator's bound on everything, whatever policy says: the daemon meets every grant with it, and the runner checks every Spec against it again. */
export interface Ceiling {
  /** that may be granted; CAP_SYS_ADMIN never */
  capabilities?: string[];
  cpu_millis?: Int64;
  /** of one session */
  cpu_time_ns?: Nanoseconds;
  /** live in one session; daemon only */
  executions?: Int64;
  /** live, of one uid over all its sessions; daemon only */
  executions_per_principal?: Int64;
  files?: Int64;
  /** a session may be without activity for so long; daemon only */
  idle_ns?: Nanoseconds;
  /** daemon only */
  inline_bytes?: Int64;
  memory_bytes?: Int64;
  /** host directories that no source may reach, from below or from above, whatever mount_roots says */
  mount_denied?: string[];
  /** host directories below which sources of mounts, dir and paths roots must resolve */
  mount_roots?: string[];
  /** number of mounts of one session */
  mounts?: Int64;
  /** prefixes that no session reaches, by name or by address, whatever is granted */
  network_denied?: string[];
  /** modes that may be used */
  networks?: string[];
  /** per stream; daemon only */
  output_bytes?: Int64;
  pids?: Int64;
  /** host directories below which rw mounts must resolve */
  read_write?: string[];
  /** kinds that may be used */
  roots?: string[];
  /** of all scratch and overlays of one session */
  scratch_bytes?: Int64;
  /** profiles that may be used */
  seccomp?: string[];
  /** live at once */
  sessions?: Int64;
  /** daemon only */
  sessions_per_principal?: Int64;
  /** of one execution; daemon only */
  timeout_ns?: Nanoseconds;
  /** daemon only */
  ttl_ns?: Nanoseconds;
  /** lowest and highest inside uid and gid; [0,0] = 1..65534 */
  uids?: number[];
}

/** CeilingKind says whether a ceiling can be armed here. */
export interface CeilingKind {
  /** why it cannot, or at what cost it can */
  detail?: string;
  /** of one execution, tighter than its session's */
  execution: boolean;
  /** the operator's; 0 is none */
  max?: Int64;
  /** the member of limits that asks for it */
  name: string;
  /** of a session */
  session: boolean;
}

/** Ceilings bound a session. */
export interface Ceilings {
  /** thousandths of one CPU */
  cpu_millis?: Int64;
  /** user and system time of all executions together */
  cpu_time_ns?: Nanoseconds;
  /** Those that a session need not have. 0 is none. */
  cpu_weight?: Int64;
  /** of scratch and overlays together; such a session has no rw mount, which nothing bounds */
  disk_bytes?: Int64;
  disk_inodes?: Int64;
  /** live at once */
  executions?: Int64;
  /** open files of one process */
  files?: Int64;
  /** read, and written, on the devices of the mounts */
  io_bytes_per_second?: Int64;
  /** swap is always 0 */
  memory_bytes?: Int64;
  /** per stream of one execution */
  output_bytes?: Int64;
  pids?: Int64;
  /** that may wait for their turn; 0 = 64, and none where exec.queue is false */
  queued?: Int64;
}

/** CgroupFile is one ceiling as the kernel holds it. */
export interface CgroupFile {
  controller: string;
  file: string;
  value: string;
}

/** Change is one difference between an overlay and what lies below it. */
export interface Change {
  /** added, modified, deleted */
  kind: string;
  link?: string;
  /** as path_bytes */
  link_bytes?: Uint8Array;
  mode?: number;
  /** relative to the mount */
  path: string;
  /** the path, when it is not UTF-8: then path has U+FFFD for what is not */
  path_bytes?: Uint8Array;
  size_bytes?: Int64;
  /** file, dir, symlink, fifo */
  type: string;
}

/** Checkpoint is the answer of receipt.checkpoint: what the journal's key has signed, to be kept where the supervisor cannot write. */
export interface Checkpoint {
  /** signed note: number and Merkle root of all records so far */
  note: string;
}

/** Chunk is bytes of one stream, and where they belong. */
export interface Chunk {
  at_ns?: Nanoseconds;
  bytes: Uint8Array;
  /** of the first byte in its stream */
  offset: Int64;
  /** of the arrival that it is a part of; from 1 */
  seq: Int64;
  /** stdout or stderr */
  stream: string;
}

/** Clamp says that a request-level limit was lowered (C17). */
export interface Clamp {
  effective: Int64;
  /** e.g. "limits.memory_bytes" */
  field: string;
  requested: Int64;
  /** "policy", "ceiling" or "runtime" */
  source: string;
}

/** CloseResult is the payload of host.session.close. */
export interface CloseResult {
  ended_at?: string;
  ended_at_ns?: Nanoseconds;
  final_state?: string;
  /** closed, expired, signal, … */
  reason?: string;
  /** closed, not_found */
  status: string;
  summary?: string;
  usage?: Usage;
}

/** ControlResult is the payload of the operations on an execution and of session pause, resume and narrow. */
export interface ControlResult {
  /** of input that was written */
  bytes?: Int64;
  /** of host.process.stop: how many were ended; of session.narrow: connections that it cut off */
  count?: Int64;
  error_code?: Code;
  exec_id?: string;
  /** that started it */
  intent_id?: string;
  /** of admin.log.level: from here on */
  log_level?: string;
  /** of admin.log.level: what it was before */
  previous?: string;
  /** afterwards */
  state?: State;
  /** see the operation */
  status: string;
  /** effective */
  timeout_ns?: Nanoseconds;
}

/** Decision is the answer of policy.decide: what would become of the operation, and why. */
export interface Decision {
  allow: boolean;
  clamped?: Clamp[];
  deny?: Deny[];
  /** of an open: the effective one */
  grant?: Grant;
  op: Op;
  policy: PolicyRef;
  /** it would wait for somebody's leave */
  require_approval?: RequireApproval;
  warn?: string[];
}

/** Denial is something that a layer refused at run time, from that layer's own evidence. */
export interface Denial {
  at: string;
  at_ns: Nanoseconds;
  count: Int64;
  errno: string;
  /** the least that would have allowed it; absent where no one thing does */
  grant?: string;
  /** seccomp, network, dns */
  layer: string;
  object?: string;
  rule: string;
  syscall?: string;
}

/** Deny is one reason of a denial. */
export interface Deny {
  code: Code;
  message?: string;
  /** the object that was refused, e.g. "mount:/etc" */
  subject?: string;
}

/** Destination is what may be reached over TCP: a name or a prefix of addresses, with ports. */
export interface Destination {
  /** a prefix, such as "192.0.2.0/24"; instead of a name */
  cidr?: string;
  /** a DNS name in lower case, or "*." and one for the names below it */
  name?: string;
  /** absent = every port */
  ports?: number[];
  /** of a name: "" wants it in the first bytes, as TLS and HTTP have it; "tcp" goes by address alone */
  protocol?: string;
}

/** Digest names a host path and the digest of its content. */
export interface Digest {
  /** sha256:<hex> of the tree, as sandbox.TreeDigest defines */
  digest: string;
  files: Int64;
  path: string;
  size_bytes: Int64;
}

/** Drain has the supervisor take no new sessions and executions (admin.drain), until it is undone. */
export interface Drain {
  scope?: Scope;
  undo?: boolean;
}

/** Enforced is what the kernel says is in force, read back after the session was built. */
export interface Enforced {
  /** of verify */
  canaries?: Canary[];
  /** bounding set of executions, hex */
  capabilities: string;
  /** each ceiling's file in each hierarchy */
  ceilings?: CgroupFile[];
  /** layout: "v1", "v2" or "hybrid" */
  cgroup: string;
  cpu_millis: Int64;
  /** layers that the host lacks and the caller does without */
  degraded?: string[];
  /** what holds the device allow-list: "bpf", or "bpf and devices" */
  devices?: string;
  /** whose rights are handled; 0 = no Landlock */
  landlock_abi: number;
  /** that can be made in the session's */
  max_user_namespaces: Int64;
  memory_bytes: Int64;
  /** mountinfo of the session: "target type options" */
  mounts: string[];
  /** kind to inode, each different from the supervisor's */
  namespaces: { [name: string]: Int64 };
  /** interfaces, routes and rules, as text */
  network?: string[];
  no_new_privs: boolean;
  pids: Int64;
  /** layer to how its refusals come to be told; "" when they do not */
  reports?: { [name: string]: string };
  /** hard limits of executions: "NOFILE", … */
  rlimits?: { [name: string]: Int64 };
  /** 2 = filter */
  seccomp: number;
  /** sha256:<hex> of the program that init was given; Seccomp says that one is in force */
  seccomp_filter?: string;
  swap_bytes: Int64;
}

/** Error is an error that a caller sees: a stable code and a sentence. */
export interface Error {
  code: Code;
  message: string;
}

/** ErrorBody is the body of every answer that is not a receipt or a document. */
export interface ErrorBody {
  error: Error;
  /** as the page from that position would have it */
  gone?: Gone;
}

/** Event is one event of a stream, as SSE data or as one NDJSON line. */
export interface Event {
  /** of accepted: it waits for leave */
  approval_id?: string;
  /** when the bytes arrived at the supervisor */
  at_ns?: Nanoseconds;
  bytes?: Uint8Array;
  cursor?: string;
  exec_id?: string;
  frame?: Frame;
  gone?: Gone;
  intent_id?: string;
  kind: EventKind;
  /** the reader is behind; nothing is left out */
  lagged?: Lagged;
  /** of the first byte of Bytes in its stream */
  offset?: Int64;
  receipt?: Receipt;
  /** stdout or stderr */
  stream?: string;
}

/** Exec asks for one command in a session (host.exec), or for a shell: a command on a terminal (host.shell.open). */
export interface Exec {
  argv: string[];
  /** relative resolves under the session's workdir */
  cwd?: string;
  env_patch?: { [name: string]: string | {
    /** The value; it reaches the process and nothing else. */
    secret: string;
  } | {
    /** In records, in place of a secret: its salted digest. */
    secret_digest: string;
  } | null };
  /** shown to policy, filterable */
  labels?: { [name: string]: string };
  /** below the session's (R053) */
  limits?: Limits;
  max_inline_bytes?: Int64;
  output_mode?: string;
  /** inside paths returned as blobs once the command has ended */
  outputs?: string[];
  scope?: Scope;
  session_id: string;
  stdin?: Stdin;
  /** stdin stays open after what Stdin says, for host.process.input */
  stdin_open?: boolean;
  /** alias of stdin.blob_ref (C28) */
  stdin_ref?: string;
  /** of host.shell.open alone */
  terminal?: Terminal;
  /** nanoseconds of wall time; 0 means the grant's */
  timeout_ns?: Nanoseconds;
  /** false: answer with the ids as soon as the intent is durable */
  wait?: boolean;
  /** answer with the receipt, or after so long with the ids and the output so far */
  wait_ms?: Int64;
}

/** ExecResult is the payload of host.exec. */
export interface ExecResult {
  /** of a shell: how many it said had ended */
  commands?: Int64;
  /** what was refused to it at run time: the first of each kind */
  denials?: Denial[];
  denials_dropped?: Int64;
  ended_at?: string;
  ended_at_ns?: Nanoseconds;
  error_code?: Code;
  error_message?: string;
  /** -1 when there is none */
  exit_code: number;
  /** ceilings that were reached, whatever the command made of it */
  limits_hit?: LimitHit[];
  /** through the relay */
  network?: Traffic;
  outputs?: Artifact[];
  overflow?: Overflow;
  /** of a shell that was recorded */
  recording?: Recording;
  signal?: string;
  started_at?: string;
  started_at_ns?: Nanoseconds;
  /** ok, timeout, signaled, error */
  status: string;
  stderr?: Output;
  stderr_bytes?: Int64;
  stdout?: Output;
  /** written by the process, kept or not */
  stdout_bytes?: Int64;
  /** of a shell: sha256:<hex> of all that came out of its terminal, kept or not, marks included */
  transcript?: string;
  /** that cannot say what they refuse; of a command that failed */
  unreported_layers?: string[];
  usage?: Usage;
}

/** FileEdit replaces text in a file (host.fs.edit_file). */
export interface FileEdit {
  dry_run?: boolean;
  /** without the fuzzy rules */
  exact_only?: boolean;
  expected_sha256?: string;
  /** alias of path (R199) */
  file_path?: string;
  new_string: string;
  old_string: string;
  path?: string;
  /** the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not */
  path_bytes?: Uint8Array;
  replace_all?: boolean;
  scope?: Scope;
  session_id: string;
}

/** FileGlob asks for the files whose paths a pattern matches, newest first (host.fs.glob). */
export interface FileGlob {
  case_insensitive?: boolean;
  /** absent is 100 */
  max_results?: Int64;
  output_mode?: string;
  path?: string;
  /** the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not */
  path_bytes?: Uint8Array;
  pattern: string;
  respect_ignore?: boolean;
  scope?: Scope;
  session_id: string;
}

/** FileGrep asks for the lines that a pattern matches (host.fs.grep). */
export interface FileGrep {
  after?: Int64;
  /** lines of context */
  before?: Int64;
  case_insensitive?: boolean;
  fixed_strings?: boolean;
  /** without a slash it means any depth; "!" before it excludes */
  glob_filter?: string;
  /** matching lines of one file that count; 0 is all */
  max_per_file?: Int64;
  /** matching lines in the answer; absent is 100 */
  max_results?: Int64;
  /** the pattern may match across lines, and . matches their ends */
  multiline?: boolean;
  output_mode?: string;
  path?: string;
  /** the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not */
  path_bytes?: Uint8Array;
  pattern: string;
  respect_ignore?: boolean;
  scope?: Scope;
  session_id: string;
}

/** FileList asks for the names in a directory (host.fs.list_dir). */
export interface FileList {
  /** absent is 100 */
  max_results?: Int64;
  output_mode?: string;
  path?: string;
  /** the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not */
  path_bytes?: Uint8Array;
  scope?: Scope;
  session_id: string;
}

/** FileMkdir makes a directory (host.fs.mkdir). */
export interface FileMkdir {
  /** and a directory that is there already is no conflict */
  create_parents?: boolean;
  path?: string;
  /** the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not */
  path_bytes?: Uint8Array;
  scope?: Scope;
  session_id: string;
}

/** FileMove renames a file, a directory or a link (host.fs.move). */
export interface FileMove {
  /** a file that is there is replaced; never a directory */
  overwrite?: boolean;
  path?: string;
  /** the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not */
  path_bytes?: Uint8Array;
  scope?: Scope;
  session_id: string;
  to?: string;
  to_bytes?: Uint8Array;
}

/** FilePatch changes any number of files, all or none (host.fs.apply_patch). */
export interface FilePatch {
  dry_run?: boolean;
  patch: ToolPatchText;
  /** "v4a" (default) or "unified" */
  patch_format?: string;
  scope?: Scope;
  session_id: string;
}

/** FileRead asks for a file, or a range of it (host.fs.read_file). */
export interface FileRead {
  /** "utf8" (default) or "bytes" */
  encoding?: string;
  /** absent: all, up to the ceilings */
  max_bytes?: Int64;
  /** 0: all */
  max_lines?: Int64;
  offset_bytes?: Int64;
  output_mode?: string;
  path?: string;
  /** the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not */
  path_bytes?: Uint8Array;
  scope?: Scope;
  session_id: string;
  /** from 1; 0 does not count lines */
  start_line?: Int64;
}

/** FileRemove removes a file, a link or a directory (host.fs.remove). */
export interface FileRemove {
  path?: string;
  /** the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not */
  path_bytes?: Uint8Array;
  /** what is in a directory too */
  recursive?: boolean;
  scope?: Scope;
  session_id: string;
}

/** FileStat asks what is at a path (host.fs.stat), or only whether there is anything (host.fs.exists). */
export interface FileStat {
  /** of a symbolic link at the path, the link itself */
  link?: boolean;
  path?: string;
  /** the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not */
  path_bytes?: Uint8Array;
  scope?: Scope;
  session_id: string;
}

/** FileTool asks for one file operation in a session (host.fs.*). */
export interface FileTool {
  edit?: ToolEdit;
  glob?: ToolGlob;
  grep?: ToolGrep;
  list?: ToolList;
  mkdir?: ToolMkdir;
  move?: ToolMove;
  op: Op;
  patch?: ToolPatch;
  read?: ToolRead;
  remove?: ToolRemove;
  scope?: Scope;
  session_id: string;
  /** host.fs.stat and host.fs.exists */
  stat?: ToolStat;
  write?: ToolWrite;
}

/** FileWrite gives a file its content (host.fs.write_file). */
export interface FileWrite {
  content: ToolContent;
  create_parents?: boolean;
  /** set or take the executable bits; absent leaves them */
  executable?: boolean;
  /** of what is replaced, 64 hex digits; "absent" expects no file */
  expected_sha256?: string;
  /** "overwrite" (default) or "create_new" */
  mode?: string;
  path?: string;
  /** the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not */
  path_bytes?: Uint8Array;
  scope?: Scope;
  session_id: string;
}

/** ForwardResult is the payload of host.session.forward. */
export interface ForwardResult {
  /** that were made inside */
  connections: Int64;
  error_code?: Code;
  port?: number;
  /** "cut": the session ended or was narrowed; otherwise its caller left */
  reason?: string;
  received_bytes: Int64;
  /** that were not: nobody listened */
  refused: Int64;
  /** into the session */
  sent_bytes: Int64;
  /** closed, error */
  status: string;
}

/** Frame is a durable milestone of an intent (R118): journaled before anybody sees it, and seen by all who look, in the order of Seq. */
export interface Frame {
  at: string;
  at_ns: Nanoseconds;
  effect_kind: Op;
  /** number of the intent's record in the journal: the fence */
  emitted_at_seq: Int64;
  intent_id: string;
  kind: FrameKind;
  /** whose intent it is: uid and scope */
  origin_instance_key: string;
  /** "stockade" */
  origin_module_id: string;
  payload?: FramePayload;
  /** from 1, per intent */
  seq: Int64;
}

/** FrameList is a page of the frames of one intent, in order. */
export interface FrameList {
  frames: Frame[];
  /** what was asked for is not kept any more */
  gone?: Gone;
  receipt?: Receipt;
}

/** FramePayload is what a frame carries: totals, never the bytes themselves (R121, R122). */
export interface FramePayload {
  /** of its end */
  cause?: Code;
  cols?: number;
  /** that begins, or has ended */
  command_id?: string;
  /** that have ended so far */
  commands?: Int64;
  elapsed_ns?: Nanoseconds;
  exec_id?: string;
  exit_code?: number;
  /** all that was written so far */
  input_bytes?: Int64;
  input_closed?: boolean;
  input_id?: string;
  /** when TERM becomes KILL */
  kill_at_ns?: Nanoseconds;
  /** in its output: where that of the command ended, or its prompt is there */
  offset?: Int64;
  rows?: number;
  session_id?: string;
  /** changes of state since the last frame that have none of their own */
  skipped?: Int64;
  /** Of a shell. */
  status?: ShellState;
  stderr_bytes?: Int64;
  stdout_bytes?: Int64;
  timeout_ns?: Nanoseconds;
}

/** Gone says that what was asked for is not kept any more, and what is. */
export interface Gone {
  /** cursor; absent when nothing is */
  first_available?: string;
  /** the position that was asked for */
  from: string;
}

/** Grant is the whole answer of policy to an open: everything that the session may be. */
export interface Grant {
  /** layers that the session may be without where the host lacks them */
  accept_degraded?: string[];
  ceilings: Ceilings;
  env: GrantEnv;
  exec: GrantExec;
  /** the grant itself ends here (R109) */
  expires_at_ns?: Nanoseconds;
  /** what file tools may do; absent is nothing */
  fs?: GrantFS;
  hostname: string;
  identity: Identity;
  /** after so long without activity the session ends (R021) */
  idle_timeout_ns?: Nanoseconds;
  /** the mounts that are granted, of those asked for */
  mounts: GrantMount[];
  network: GrantNetwork;
  /** "terminate": the session ends with its supervisor; "" and "adopt" leave it to the caller */
  on_restart?: string;
  /** name for receipts */
  profile?: string;
  /** "host", "dir" or "paths": the arm that is granted */
  root: string;
  /** private tmpfs */
  scratch: GrantScratch[];
  /** profile name: "default", "build" or "strict" */
  seccomp: string;
  ttl_ns?: Nanoseconds;
  /** "canary": what must fail is tried from inside before the session is ready */
  verify?: string;
  workdir: string;
}

/** GrantChange is one field in which two grants differ. */
export interface GrantChange {
  after: unknown;
  /** null is absent */
  before: unknown;
  /** wider, narrower, other */
  effect: string;
  field: string;
}

/** GrantEnv is the environment: the names that a caller may set, and what policy sets. */
export interface GrantEnv {
  /** names or "PREFIX_*"; absent = any, [] = none */
  allow?: string[];
  max?: Int64;
  /** wins over the caller */
  set?: { [name: string]: string };
}

/** GrantExec bounds what may be executed in the session. */
export interface GrantExec {
  /** processes may outlive the execution that started them */
  background?: boolean;
  cwd_prefixes?: string[];
  default_timeout_ns?: Nanoseconds;
  /** of one argument */
  max_arg_bytes?: Int64;
  /** number of arguments */
  max_argv?: Int64;
  max_inline_bytes?: Int64;
  max_timeout_ns?: Nanoseconds;
  output_modes?: string[];
  /** inside paths that `outputs` may name */
  output_prefixes?: string[];
  /** false: what cannot start at once is refused; absent = it waits (R052) */
  queue?: boolean;
  /** absent: shells are not recorded */
  record?: GrantRecord;
  /** false: none is opened; absent = as commands are (R175) */
  shells?: boolean;
  signals?: string[];
}

/** GrantFS bounds the file tools of a session (R093 to R106). */
export interface GrantFS {
  /** "deny", "within_root_only" (default) or "allow" */
  follow_symlinks?: string;
  /** by one patch */
  max_changed_files?: Int64;
  /** by one edit */
  max_edit_replacements?: Int64;
  /** of globs and lists; more is cut */
  max_glob_results?: Int64;
  /** more is cut */
  max_grep_results?: Int64;
  /** of an answer that is no blob */
  max_inline_bytes?: Int64;
  /** of the patch itself */
  max_patch_bytes?: Int64;
  /** of one answer; more is cut */
  max_read_bytes?: Int64;
  /** likewise */
  max_scan_bytes?: Int64;
  /** a scan ends there, and says so */
  max_scan_files?: Int64;
  /** of one file's new content */
  max_write_bytes?: Int64;
  /** of read, write, edit, patch, search, list and stat */
  ops: string[];
  /** "v4a" and "unified"; absent = v4a */
  patch_formats?: string[];
  /** inside directories; absent = any */
  roots?: string[];
  /** of them, those below which alone something is changed; absent = all */
  write_roots?: string[];
}

/** GrantForward lets the owner of a session reach ports on its loopback (host.session.forward). */
export interface GrantForward {
  /** absent = every port */
  ports?: number[];
}

/** GrantMount is one mount that policy grants. */
export interface GrantMount {
  /** Of an overlay: the room for what is written. Both are needed. */
  bytes?: Int64;
  /** "input": its content is digested for the receipt; any other word is the author's */
  class?: string;
  guest_path: string;
  host_path: string;
  inodes?: Int64;
  /** "ro", "rw" or "overlay": writable inside, and nothing outside changes before a commit */
  mode: string;
  /** Of a mode that writes: paths below the mount, such as ".git/hooks", that nobody inside changes, creates or moves. */
  protect?: string[];
}

/** GrantNetwork is the network that is granted. */
export interface GrantNetwork {
  /** of egress and full */
  allow?: Destination[];
  /** what its owner may reach inside; absent is nothing */
  forward?: GrantForward;
  /** "none", "egress" (what allow names) or "full" (the public internet, and what allow names) */
  mode: string;
}

/** GrantRecord has every shell of a session recorded, from its beginning on, as an asciicast. */
export interface GrantRecord {
  /** of output, and of what is noted beside it, at most; 0 = ceilings.output_bytes */
  bytes?: Int64;
  /** what is typed, too; but nothing that is secret, or is typed where nothing is to be seen of it */
  input?: boolean;
}

/** GrantScratch is a private, empty, writable file system. */
export interface GrantScratch {
  bytes: Int64;
  guest_path: string;
  inodes: Int64;
}

/** Host is what this kernel and this place offer, probed once by sandbox/host and passed in from then on. */
export interface Host {
  arch: string;
  /** "v1", "v2" or "hybrid" */
  cgroup: string;
  cpus: number;
  kernel: string;
  /** every layer that a session rests on, and what it costs to miss it */
  layers: Layer[];
  memory_bytes: Int64;
}

/** HostInfo is the answer of host.info: the machine, the operator's ceiling, and the policy in force. */
export interface HostInfo {
  ceiling: Ceiling;
  host: Host;
  /** public key of the journal's checkpoints, in note form */
  journal_key?: string;
  policy_digest: string;
  /** absent: policy is evaluated by the supervisor itself */
  policy_workers?: PolicyWorkers;
  version: Version;
}

/** Identity is what executions run as inside. */
export interface Identity {
  capabilities?: string[];
  gid: number;
  groups?: number[];
  uid: number;
}

/** InlineBytes is bytes in the document itself, base64 on the wire. */
export interface InlineBytes {
  bytes: Uint8Array;
}

/** InlineText is UTF-8 text in the document itself. */
export interface InlineText {
  text: string;
}

/** Intent is an operation with effect, in flight or settled. */
export interface Intent {
  admitted_at: string;
  admitted_at_ns: Nanoseconds;
  /** while in flight */
  age_ns?: Nanoseconds;
  /** it waited for leave, or waits */
  approval_id?: string;
  /** number of its record in the journal */
  emitted_at_seq: Int64;
  exec_id?: string;
  /** of its last frame */
  frame_seq: Int64;
  idempotency_key?: string;
  intent_id: string;
  op: Op;
  outcome?: Outcome;
  principal: Principal;
  requested_kind?: Op;
  session_id?: string;
  settled_at?: string;
  settled_at_ns?: Nanoseconds;
  /** queued, while it waits for leave */
  state?: State;
}

/** IntentList is a page of intents, newest first. */
export interface IntentList {
  intents: Intent[];
}

/** Lagged says how far a reader of output is behind the process. */
export interface Lagged {
  /** where the reader is */
  from: Int64;
  stream: string;
  /** where the process is */
  to: Int64;
}

/** Layer is one protection, and whether it can be had here. */
export interface Layer {
  /** what was found: a version, an ABI, an errno */
  detail?: string;
  /** e.g. "idmapped mounts" */
  name: string;
  /** what would grant it */
  remedy?: string;
  required: boolean;
  /** "present", "missing" or "unknown" */
  state: string;
}

/** LimitHit is a ceiling that was reached while a command ran. */
export interface LimitHit {
  /** memory, pids, cpu_time, disk_bytes, disk_inodes, output_bytes, timeout */
  ceiling: string;
  /** oom_killed, pids_exceeded, … */
  code: Code;
  /** how often */
  count?: Int64;
  /** what would raise it */
  hint: string;
  /** bytes, processes, nanoseconds or inodes */
  limit: Int64;
  object?: string;
  /** 0 where the kernel does not say */
  peak?: Int64;
  /** "execution", or "session" when the ceiling is shared */
  scope: string;
}

/** Limits are ceilings that the caller asks for, below those of the grant. */
export interface Limits {
  /** thousandths of one CPU */
  cpu_millis?: Int64;
  /** user and system time of the whole tree */
  cpu_time_ns?: Nanoseconds;
  /** Of a session only. */
  cpu_weight?: Int64;
  disk_bytes?: Int64;
  disk_inodes?: Int64;
  /** open files of one process */
  files?: Int64;
  io_bytes_per_second?: Int64;
  memory_bytes?: Int64;
  /** per stream of one execution */
  output_bytes?: Int64;
  pids?: Int64;
}

/** Load is what a session uses at the moment at which it is asked for; its ceilings are in its grant. */
export interface Load {
  /** that all executions have used, those that are over included */
  cpu_ns: Nanoseconds;
  /** operations on it that policy or a ceiling said no to */
  denied: Int64;
  memory_bytes: Int64;
  /** that executions wrote */
  output_bytes: Int64;
  pids: Int64;
  /** what its layers refused to executions that have ended */
  refused: Int64;
  /** when memory, pids and cpu were read; 0: not yet */
  sampled_at_ns?: Nanoseconds;
}

/** Local builds the session from namespaces of this kernel. */
export interface Local {
  /** of egress and full: what is wanted, and no more is granted; absent leaves it to policy */
  egress?: Destination[];
  env?: { [name: string]: string | {
    /** The value; it reaches the process and nothing else. */
    secret: string;
  } | {
    /** In records, in place of a secret: its salted digest. */
    secret_digest: string;
  } | null };
  hostname?: string;
  mounts?: Mount[];
  /** "none" (default), "egress" or "full" */
  network_mode?: string;
  root?: Root;
  /** absolute inside path; "" means the grant's */
  workdir?: string;
}

/** LogLevel gives the supervisor's log another level (admin.log.level), until the supervisor starts or reads its configuration again. */
export interface LogLevel {
  /** debug, info, warn or error */
  level: string;
  scope?: Scope;
}

/** Mount binds a host path into the session. */
export interface Mount {
  /** of an overlay: the room for what is written; 0 means the grant's */
  bytes?: Int64;
  guest_path: string;
  host_path: string;
  inodes?: Int64;
  /** "ro", "rw" or "overlay" */
  mode: string;
}

/** Notice is one entry of the event log of a session or a principal. */
export interface Notice {
  approval_id?: string;
  at: string;
  at_ns: Nanoseconds;
  detail?: string;
  exec_id?: string;
  intent_id?: string;
  kind: NoticeKind;
  op?: Op;
  /** error or deny code, or why a session ended */
  reason?: string;
  seq: Int64;
  session_id?: string;
  /** of the session, the execution or the approval, from here on */
  state?: string;
  stderr_bytes?: Int64;
  stdout_bytes?: Int64;
}

/** NoticeList is a page of an event log, in order. */
export interface NoticeList {
  events: Notice[];
  gone?: Gone;
  next: Int64;
}

/** OpenResult is the payload of host.session.open. */
export interface OpenResult {
  enforced?: Enforced;
  error_code?: Code;
  error_message?: string;
  expires_at?: string;
  expires_at_ns?: Nanoseconds;
  /** effective: the meet of request, policy and ceiling */
  grant?: Grant;
  /** digested root paths and inputs */
  inputs?: Digest[];
  session_id?: string;
  started_at?: string;
  started_at_ns?: Nanoseconds;
  /** "ready" or "error" */
  status: string;
}

/** Output is one stream of an execution: a tagged variant. */
export interface Output {
  blob?: BlobOutput;
  inline_bytes?: InlineBytes;
  inline_text?: InlineText;
  /** of a shell: where what is kept begins, the end of its output */
  offset?: Int64;
  /** written by the process, when truncated */
  total_bytes?: Int64;
  /** the output ceiling cut it */
  truncated?: boolean;
}

/** Overflow says which stream did not fit inline although inline was required. */
export interface Overflow {
  limit_bytes: Int64;
  size_bytes: Int64;
  stream: string;
}

/** Payload is the operation's own result: a tagged variant, the arm that Op names. */
export interface Payload {
  blob?: BlobResult;
  close?: CloseResult;
  control?: ControlResult;
  exec?: ExecResult;
  file?: ToolResult;
  forward?: ForwardResult;
  open?: OpenResult;
  policy?: PolicyResult;
  shell?: ShellResult;
  signal?: SignalResult;
  verdict?: VerdictResult;
  workspace?: SpaceResult;
}

/** Pending is the answer about an execution that goes on: to host.exec with wait false or wait_ms, and to host.process.output. */
export interface Pending {
  /** it waits for leave */
  approval_id?: string;
  /** what follows Output, for after */
  cursor: string;
  /** nothing follows Output, ever */
  end?: boolean;
  exec_id: string;
  gone?: Gone;
  intent_id: string;
  /** in order of arrival */
  output?: Chunk[];
  receipt?: Receipt;
  session_id: string;
  state: State;
}

/** PolicyActivate asks that the policy which is there now be the one that decides (admin.policy.activate), or what would become of that (admin.policy.preview). */
export interface PolicyActivate {
  /** of the revision that is meant: another one is refused */
  digest?: string;
  /** what becomes of a session that would get less today: "keep", "narrow" (or end, where it cannot be narrowed) or "terminate"; "" leaves it to the policy */
  live?: string;
  scope?: Scope;
  /** only while no intent is open; otherwise any time, for what is opened from then on */
  strict?: boolean;
}

/** PolicyPreview is the answer of admin.policy.preview: the candidate, which was validated, and what its activation would do. */
export interface PolicyPreview {
  active: PolicyRevision;
  /** of strict: what keeps it from being activated now */
  blocking?: Quiescence;
  candidate: PolicyRevision;
  /** that are open: those that would get less first */
  sessions: PolicySession[];
  sessions_dropped?: Int64;
}

/** PolicyRef says which policy decided and by which rules. */
export interface PolicyRef {
  /** of the bundle's files: sha256:<hex> */
  digest: string;
  /** e.g. data.stockade.open.decision */
  entrypoint: string;
  /** of the METADATA of these rules and their packages: "name=value" */
  labels?: string[];
  /** number of the bundle, if it has one */
  revision?: Int64;
  /** rules that were evaluated to a value: "file:line package.rule" */
  rules?: string[];
}

/** PolicyRefusal says why a candidate is not the policy. */
export interface PolicyRefusal {
  at: string;
  at_ns: Nanoseconds;
  /** absent when it could not be read */
  digest?: string;
  error_code: Code;
  error_message: string;
  revision?: Int64;
  /** start, file, signal or api */
  trigger: string;
}

/** PolicyResult is the payload of admin.policy.activate. */
export interface PolicyResult {
  blocking?: Quiescence;
  error_code?: Code;
  /** digest */
  previous?: string;
  revision?: PolicyRevision;
  /** that did not stay as they were, the first of them */
  sessions?: PolicySession[];
  sessions_dropped?: Int64;
  /** activated, unchanged, blocked, refused, error */
  status: string;
}

/** PolicyRevision is one revision of the policy. */
export interface PolicyRevision {
  activated_at?: string;
  /** by this supervisor */
  activated_at_ns?: Nanoseconds;
  /** of the builtins that it may call */
  capabilities_digest?: string;
  /** with the supervisor */
  contract?: Int64;
  data_digest?: string;
  /** of the files that decide: what receipts name */
  digest: string;
  /** its manifest's; 0 = it has none */
  revision?: Int64;
  /** that are judged by it until they end */
  sessions?: Int64;
  /** sha256:<hex> of the public key; absent = no signature was asked for */
  signed_by?: string;
  /** where it was read; absent = it came with the supervisor */
  source?: string;
}

/** PolicySession is what a candidate means to an open session: its open was asked again. */
export interface PolicySession {
  /** keep, narrow, terminate */
  action: string;
  /** from what it has to what it would get */
  changes?: GrantChange[];
  /** why it would not be opened */
  deny?: Deny[];
  error_code?: Code;
  /** that it is judged by */
  policy_digest: string;
  principal: Principal;
  profile?: string;
  session_id: string;
  /** of activate: kept, narrowed, terminated, error */
  status?: string;
  /** same, wider, narrower, denied, or unknown: it could not be asked again */
  verdict: string;
}

/** PolicyStatus is the answer of admin.policy.status. */
export interface PolicyStatus {
  /** judges what is opened now, and everything outside of sessions */
  active: PolicyRevision;
  /** number that was ever active: nothing older is taken */
  highest?: Int64;
  /** one of which must have signed it */
  keys?: string[];
  /** others, by which open sessions are judged */
  pinned: PolicyRevision[];
  /** the last candidate, if it was not taken */
  refused?: PolicyRefusal;
  /** where the next one is read; absent = there is none */
  source?: string;
}

/** PolicyWorkers are the processes that evaluate the policy in force, and nothing else. */
export interface PolicyWorkers {
  /** that one decision may take */
  cpu_time_ns: Nanoseconds;
  /** that each may take beyond what it began with */
  memory_bytes: Int64;
  processes: Int64;
  /** that were ended, or ended, since the revision was loaded */
  replaced: Int64;
  /** why the last start of one failed */
  trouble?: string;
  /** around each: seccomp, no_new_privs, … */
  walls: string[];
}

/** Principal is who asks: the peer of the socket by the kernel's word, plus the scope that the caller declares. */
export interface Principal {
  gid: number;
  groups?: number[];
  scope?: Scope;
  uid: number;
}

/** Process is the record of an execution as get and list show it (R228). */
export interface Process {
  /** it waited for leave, or waits */
  approval_id?: string;
  /** the beginning of it */
  argv: string[];
  duration_ns?: Nanoseconds;
  ended_at?: string;
  ended_at_ns?: Nanoseconds;
  error_code?: Code;
  exec_id: string;
  /** once it has exited by itself */
  exit_code?: number;
  /** of its last frame */
  frame_seq?: Int64;
  intent_id: string;
  labels?: { [name: string]: string };
  paused?: boolean;
  principal: Principal;
  queued_at: string;
  queued_at_ns: Nanoseconds;
  /** of a final state: non_zero_exit, signal, oom, cpu_time, spawn, lost, or an error code */
  reason?: string;
  session_id: string;
  /** it has a terminal */
  shell?: boolean;
  signal?: string;
  started_at?: string;
  started_at_ns?: Nanoseconds;
  state: State;
  stderr_bytes?: Int64;
  stdin_open?: boolean;
  /** written so far, or in all */
  stdout_bytes?: Int64;
  usage?: Usage;
}

/** ProcessCancel ends the whole tree of an execution: TERM, then KILL (host.process.cancel). */
export interface ProcessCancel {
  exec_id?: string;
  /** TERM to KILL; absent means the default, 0 at once */
  grace_timeout_ns?: Nanoseconds;
  intent_id?: string;
  scope?: Scope;
  /** false: answer cancel_requested without waiting for the end */
  wait?: boolean;
}

/** ProcessInput writes to the stdin of an execution that was started with stdin_open (host.process.input). */
export interface ProcessInput {
  /** end of file after Data */
  close?: boolean;
  /** inline_text, inline_bytes or secret_text */
  data?: Stdin;
  exec_id?: string;
  /** the same again is written once: the answer says duplicate */
  input_id?: string;
  intent_id?: string;
  scope?: Scope;
}

/** ProcessList is a page of executions, newest first. */
export interface ProcessList {
  /** cursor of the next page; absent on the last */
  next?: string;
  processes: Process[];
}

/** ProcessModify changes a running execution (host.process.modify). */
export interface ProcessModify {
  exec_id?: string;
  intent_id?: string;
  scope?: Scope;
  /** nanoseconds from its start; bounded by the grant */
  timeout_ns: Nanoseconds;
}

/** ProcessSignal delivers one signal to one execution and promises nothing more (host.process.signal). */
export interface ProcessSignal {
  exec_id?: string;
  intent_id?: string;
  scope?: Scope;
  signal: string;
}

/** ProcessStop cancels every live execution of the caller's that fits (host.process.stop, R246). */
export interface ProcessStop {
  grace_timeout_ns?: Nanoseconds;
  labels?: { [name: string]: string };
  scope?: Scope;
  session_id?: string;
}

/** ProcessTarget names an execution (host.process.pause, resume and delete). */
export interface ProcessTarget {
  exec_id?: string;
  intent_id?: string;
  scope?: Scope;
}

/** Quiescence says what keeps the supervisor from being quiet (R134, R135). */
export interface Quiescence {
  draining?: boolean;
  executions: Int64;
  /** in flight, oldest first, of every principal */
  intents: Intent[];
  quiet: boolean;
  sessions: Int64;
}

/** Read is the object of an operation without effect, and the filters of lists. */
export interface Read {
  /** only what has not ended */
  active?: boolean;
  /** cursor that an earlier answer gave: what follows it */
  after?: string;
  /** of this scope, as far as it is said */
  agent_id?: string;
  approval_id?: string;
  blob_ref?: string;
  chat_id?: string;
  /** why something was refused, failed or was ended */
  code?: Code;
  exec_id?: string;
  /** of a recording: what was typed, too */
  input?: boolean;
  intent_id?: string;
  labels?: { [name: string]: string };
  limit?: Int64;
  /** of output in one answer */
  max_bytes?: Int64;
  op?: Op;
  /** Of receipts. */
  order?: string;
  outcome?: Outcome;
  /** the receipt names it, or what lies below it */
  path?: string;
  /** a part of the name of a rule that decided, or of the code of a denial */
  rule?: string;
  session_id?: string;
  /** settled then or later */
  since_ns?: Nanoseconds;
  state?: string;
  /** of this user */
  uid?: Int64;
  /** settled before */
  until_ns?: Nanoseconds;
  /** long poll: how long to wait for something to say */
  wait_ms?: Int64;
  world_id?: string;
}

/** Receipt is the one terminal answer to an operation, journaled before the caller sees it. */
export interface Receipt {
  admitted_at: string;
  admitted_at_ns: Nanoseconds;
  /** of one that had to wait for leave: who decided, and when */
  approval?: Approval;
  clamped?: Clamp[];
  deny?: Deny[];
  error_code?: Code;
  error_message?: string;
  exec_id?: string;
  /** of its last frame: there are so many */
  frame_seq?: Int64;
  idempotency_key?: string;
  intent_id: string;
  op: Op;
  outcome: Outcome;
  payload?: Payload;
  policy?: PolicyRef;
  principal: Principal;
  /** derived for agent-os clients: ok, error, timeout (C11) */
  receipt_status: string;
  requested_kind?: Op;
  session_id?: string;
  settled_at: string;
  settled_at_ns: Nanoseconds;
  timings?: Timing[];
  /** 1 */
  version: number;
  warn?: string[];
}

/** ReceiptList is a page of receipts, newest first unless the other order was asked for. */
export interface ReceiptList {
  /** cursor: behind it, oldest first, is what was settled later than all that there is */
  head?: string;
  /** there is something behind it */
  more?: boolean;
  /** cursor: how far this page has looked */
  next?: string;
  receipts: Receipt[];
}

/** Recording is what a shell looked like from its beginning on: an asciicast v2, for any player of those. */
export interface Recording {
  /** the asciicast: inline_text or a blob */
  cast: Output;
  /** sha256:<hex> of the asciicast, with what was typed */
  digest: string;
  /** until the last event */
  duration_ns: Nanoseconds;
  events: Int64;
  /** what was typed was recorded */
  input?: boolean;
  /** there was more than the grant has room for */
  truncated?: boolean;
}

/** Request is one operation as asked: who asks, for what. */
export interface Request {
  /** admin.policy.activate and preview */
  activate?: PolicyActivate;
  blob?: BlobPut;
  cancel?: ProcessCancel;
  close?: SessionClose;
  /** host.process.signal */
  deliver?: ProcessSignal;
  drain?: Drain;
  exec?: Exec;
  /** "http"; other facades name themselves */
  facade: string;
  /** host.fs.* */
  file?: FileTool;
  forward?: SessionForward;
  /** Key makes an operation with effect happen once: asked again with the same key, scope and content, the answer is the first one's receipt, also across a restart. */
  idempotency_key?: string;
  input?: ProcessInput;
  log?: LogLevel;
  modify?: ProcessModify;
  narrow?: SessionNarrow;
  op: Op;
  open?: SessionOpen;
  principal: Principal;
  /** host.process.pause, resume and delete */
  process?: ProcessTarget;
  /** of every other operation without effect */
  read?: Read;
  /** the alias that was used, if one was */
  requested_kind?: Op;
  /** host.session.pause and resume */
  session?: SessionTarget;
  shell_attach?: ShellAttach;
  shell_close?: ShellClose;
  shell_input?: ShellInput;
  shell_resize?: ShellResize;
  shell_run?: ShellRun;
  signal?: SessionSignal;
  stop?: ProcessStop;
  /** host.approval.approve and deny */
  verdict?: Verdict;
  /** host.workspace.diff, commit and discard */
  workspace?: Workspace;
}

/** RequireApproval is what policy says of an operation that it allows, and that may not be carried out before somebody gives leave (R091). */
export interface RequireApproval {
  /** the user who asks may give himself leave */
  allow_own?: boolean;
  /** whose leave counts; absent leaves it to the policy of approvals */
  approvers?: Approvers;
  /** shown to who is to decide */
  reason: string;
  /** from the request; who has not decided by then has denied */
  timeout_ns: Nanoseconds;
}

/** Reviewed is what leave is asked for. */
export interface Reviewed {
  ceiling_digest: string;
  /** of a file tool: what its paths lead to */
  files?: ReviewedFile[];
  /** of an open: the effective one */
  grant?: Grant;
  intent_id: string;
  /** of an exec: tighter than the session's */
  limits?: { [name: string]: Int64 };
  /** of an exec: how it is kept */
  output?: string;
  policy_digest: string;
  /** secrets replaced by digests */
  request: Request;
  require_approval: RequireApproval;
  /** what its host paths lead to */
  sources?: { [name: string]: Source };
}

/** ReviewedFile is a path inside as it was found. */
export interface ReviewedFile {
  path: string;
  /** after symbolic links */
  resolved: string;
  through_link?: boolean;
  /** it is made, changed, moved or removed */
  write?: boolean;
}

/** Root chooses the root file system: a tagged variant. */
export interface Root {
  /** an unpacked root */
  dir?: RootDir;
  /** read-only view of the host's system directories */
  host?: Record<string, never>;
  /** only the named host paths, each digested */
  paths?: RootPaths;
}

/** RootDir is an unpacked root file system on the host, used read-only. */
export interface RootDir {
  path: string;
}

/** RootPaths names host paths that alone exist inside, at the same place, read-only. */
export interface RootPaths {
  paths: string[];
}

/** Scope tells apart the agents that one host process serves. */
export interface Scope {
  agent_id?: string;
  chat_id?: string;
  world_id?: string;
}

/** Session is a session as get and list show it. */
export interface Session {
  /** layers that it is without */
  degraded?: string[];
  ended_at?: string;
  ended_at_ns?: Nanoseconds;
  env_names?: string[];
  /** of its last event */
  event_seq: Int64;
  /** so far */
  executions: Int64;
  expires_at?: string;
  expires_at_ns?: Nanoseconds;
  grant?: Grant;
  /** when it ends if nothing happens; grows with every activity */
  idle_at_ns?: Nanoseconds;
  labels?: { [name: string]: string };
  /** now, those that are queued included */
  live_executions: Int64;
  /** what it uses now, while it lives */
  load?: Load;
  /** how often a part of its network was taken away */
  narrowed?: Int64;
  /** of the executions that have ended */
  network?: Traffic;
  open_intent_id: string;
  policy_digest: string;
  principal: Principal;
  profile?: string;
  reason?: string;
  session_id: string;
  started_at: string;
  started_at_ns: Nanoseconds;
  /** ready, quiesced (paused), closing, closed, error */
  state: string;
  /** layers that cannot say what they refuse */
  unreported_layers?: string[];
  /** of the executions that have ended; of the whole session once it has */
  usage?: Usage;
  workdir?: string;
}

/** SessionClose ends a session: graceful is signal term, force is signal kill. */
export interface SessionClose {
  grace_timeout_ns?: Nanoseconds;
  /** "graceful" (default) or "force" */
  mode?: string;
  scope?: Scope;
  session_id: string;
}

/** SessionForward lets its caller reach a port on the loopback of a session (host.session.forward). */
export interface SessionForward {
  port: number;
  scope?: Scope;
  session_id: string;
}

/** SessionList is a page of sessions, newest first. */
export interface SessionList {
  sessions: Session[];
}

/** SessionNarrow takes a part of a live session's network away (host.session.narrow). */
export interface SessionNarrow {
  /** no more than the session has */
  network: GrantNetwork;
  scope?: Scope;
  session_id: string;
}

/** SessionOpen asks for a session (host.session.open). */
export interface SessionOpen {
  /** layers that the caller does without where the host lacks them */
  accept_degraded?: string[];
  /** absent means the grant's */
  allow_background_processes?: boolean;
  /** without activity for so long, the session ends; 0 means the grant's */
  idle_timeout_ns?: Nanoseconds;
  /** shown to policy, filterable */
  labels?: { [name: string]: string };
  limits?: Limits;
  /** when the supervisor restarts: "adopt" (default) or "terminate" */
  on_restart?: string;
  /** a profile of the policy library; "" lets policy choose */
  profile?: string;
  scope?: Scope;
  /** nanoseconds; 0 means the grant's */
  session_ttl_ns?: Nanoseconds;
  target: Target;
  /** "canary": what must fail is tried from inside first */
  verify?: string;
}

/** SessionSignal delivers a signal to every live execution of a session; term and kill also end the session (C7). */
export interface SessionSignal {
  /** TERM to KILL; absent means the default, 0 at once */
  grace_timeout_ns?: Nanoseconds;
  scope?: Scope;
  session_id: string;
  signal: string;
}

/** SessionTarget names a session: what host.session.pause freezes and resume thaws. */
export interface SessionTarget {
  scope?: Scope;
  session_id: string;
}

/** Setting is one setting of the supervisor: a flag of its program, or a member of its configuration. */
export interface Setting {
  /** default, file, environment or flag */
  from: string;
  kind: SettingKind;
  name: string;
  /** none where it is not set */
  values?: string[];
}

/** Settings is how the supervisor was set up, and what of it holds by now (admin.settings). */
export interface Settings {
  /** names of the variables that it heeds and was started with */
  environment?: string[];
  /** that the log has now */
  log_level: string;
  /** by name */
  settings: Setting[];
}

/** Shell is a shell as get shows it. */
export interface Shell {
  alive: boolean;
  /** it waited for leave, or waits */
  approval_id?: string;
  /** the beginning of it */
  argv: string[];
  cols: number;
  /** that runs */
  command?: ShellCommand;
  /** the last that ended, oldest first */
  commands?: ShellCommand[];
  duration_ns?: Nanoseconds;
  ended_at?: string;
  ended_at_ns?: Nanoseconds;
  error_code?: Code;
  exec_id: string;
  /** once it has exited by itself */
  exit_code?: number;
  /** of the first output that is kept */
  first_token: string;
  /** of its last frame */
  frame_seq?: Int64;
  intent_id: string;
  labels?: { [name: string]: string };
  /** the shell says where commands end; otherwise prompts are guessed at */
  marked: boolean;
  /** who are attached and watch */
  observers?: number;
  paused?: boolean;
  principal: Principal;
  /** the last line, if it is one */
  prompt?: ShellPrompt;
  queue: ShellQueue;
  queued_at: string;
  queued_at_ns: Nanoseconds;
  /** of a final state: non_zero_exit, signal, oom, cpu_time, spawn, lost, or an error code */
  reason?: string;
  rows: number;
  session_id: string;
  /** it has a terminal */
  shell?: boolean;
  signal?: string;
  started_at?: string;
  started_at_ns?: Nanoseconds;
  state: State;
  status: ShellState;
  status_number: number;
  stderr_bytes?: Int64;
  stdin_open?: boolean;
  /** written so far, or in all */
  stdout_bytes?: Int64;
  /** of the end of its output */
  token: string;
  usage?: Usage;
  /** who is attached and types */
  writer?: string;
}

/** ShellAction is what a hand at a terminal does beside typing. */
export interface ShellAction {
  /** of RESIZE */
  cols?: number;
  rows?: number;
  type: ShellActionType;
}

/** ShellAttach sits down at a shell and types (host.shell.attach): one at a time. */
export interface ShellAttach {
  /** the size of the terminal from here on; 0 leaves it */
  cols?: number;
  exec_id?: string;
  intent_id?: string;
  rows?: number;
  scope?: Scope;
  /** where somebody is attached who types: he is made an observer */
  takeover?: boolean;
}

/** ShellChunk is output of a shell, up to where something is to be said of it. */
export interface ShellChunk {
  at_ns?: Nanoseconds;
  bytes?: Uint8Array;
  /** of the command that ended with it */
  command_id?: string;
  /** and its exit code */
  exit_code?: number;
  /** of its first byte */
  offset: Int64;
  /** a prompt ends with it */
  prompt?: ShellPrompt;
  /** of what follows it */
  token: string;
  /** bytes before this are not kept any more */
  truncated?: boolean;
}

/** ShellClose ends a shell (host.shell.close): graceful hangs up and kills what is left after the grace, force kills at once. */
export interface ShellClose {
  exec_id?: string;
  /** absent means the default */
  grace_timeout_ns?: Nanoseconds;
  intent_id?: string;
  /** "graceful" (default) or "force" */
  mode?: string;
  scope?: Scope;
}

/** ShellCommand is a command in a shell, as far as the shell says where it begins and ends. */
export interface ShellCommand {
  command_id: string;
  ended_at_ns?: Nanoseconds;
  exit_code?: number;
  /** its output: offsets */
  from: Int64;
  input_id?: string;
  started_at_ns?: Nanoseconds;
  /** once it has ended */
  to?: Int64;
}

/** ShellInput types into a shell (host.shell.input): all of Data, then the actions in their order, and nobody else's between them. */
export interface ShellInput {
  actions?: ShellAction[];
  /** inline_text, inline_bytes or secret_text; any bytes, as keys send them */
  data?: Stdin;
  exec_id?: string;
  /** the same again is typed once: the answer says duplicate */
  input_id?: string;
  intent_id?: string;
  scope?: Scope;
  /** also where somebody is attached who types: he is made an observer */
  takeover?: boolean;
}

/** An Exec of which the command need not be said: without one it is /bin/bash --login. */
export interface ShellOpen {
  argv?: string[];
  /** relative resolves under the session's workdir */
  cwd?: string;
  env_patch?: { [name: string]: string | {
    /** The value; it reaches the process and nothing else. */
    secret: string;
  } | {
    /** In records, in place of a secret: its salted digest. */
    secret_digest: string;
  } | null };
  /** shown to policy, filterable */
  labels?: { [name: string]: string };
  /** below the session's (R053) */
  limits?: Limits;
  max_inline_bytes?: Int64;
  output_mode?: string;
  /** inside paths returned as blobs once the command has ended */
  outputs?: string[];
  scope?: Scope;
  session_id: string;
  stdin?: Stdin;
  /** stdin stays open after what Stdin says, for host.process.input */
  stdin_open?: boolean;
  /** alias of stdin.blob_ref (C28) */
  stdin_ref?: string;
  /** of host.shell.open alone */
  terminal?: Terminal;
  /** nanoseconds of wall time; 0 means the grant's */
  timeout_ns?: Nanoseconds;
  /** false: answer with the ids as soon as the intent is durable */
  wait?: boolean;
  /** answer with the receipt, or after so long with the ids and the output so far */
  wait_ms?: Int64;
}

/** ShellOutput is the answer to host.shell.output, and what is sent of it as it comes. */
export interface ShellOutput {
  chunks: ShellChunk[];
  /** nothing follows, ever */
  end?: boolean;
  exec_id: string;
  receipt?: Receipt;
  session_id: string;
  status: ShellState;
  status_number: number;
  /** of what follows the chunks */
  token: string;
  /** what followed the token that was asked for is not kept any more */
  truncated?: boolean;
}

/** ShellPrompt is what a shell, or a program in it, asks with. */
export interface ShellPrompt {
  /** "mark": the shell said so. "pattern": the end of the output looks like one. */
  source: string;
  /** without escape sequences */
  text: string;
}

/** ShellQueue is what waits to be typed. */
export interface ShellQueue {
  bytes?: Int64;
  requests?: number;
  /** "empty" or "busy" */
  state: string;
}

/** ShellResize changes the size of a shell's terminal (host.shell.resize). */
export interface ShellResize {
  cols: number;
  exec_id?: string;
  intent_id?: string;
  rows: number;
  scope?: Scope;
}

/** ShellResult is the payload of the operations on a shell. */
export interface ShellResult {
  accepted: boolean;
  /** that were done */
  actions?: number;
  /** that were typed */
  bytes?: Int64;
  cols?: number;
  /** of what was typed, if that has the end of a line */
  command_id?: string;
  duplicate?: boolean;
  error_code?: Code;
  exec_id?: string;
  exit_code?: number;
  rows?: number;
  session_id?: string;
  /** afterwards */
  status: ShellState;
  status_number: number;
  /** of a run: what the command wrote */
  stdout?: Output;
  /** of a close */
  summary?: string;
  timed_out?: boolean;
  /** of the output that follows */
  token?: string;
  /** of an attachment: sha256:<hex> of all that was typed */
  typed?: string;
}

/** ShellRun has a shell that waits at its prompt run one command, and waits for its end (host.shell.run). */
export interface ShellRun {
  /** of any number of lines */
  command: string;
  exec_id?: string;
  /** the same again is run once: the answer says duplicate */
  input_id?: string;
  intent_id?: string;
  scope?: Scope;
  /** after which it is interrupted, as by CTRL_C; 0 means 10 minutes */
  timeout_ns?: Nanoseconds;
}

/** SignalResult is the payload of host.session.signal. */
export interface SignalResult {
  ended_at?: string;
  ended_at_ns?: Nanoseconds;
  error_code?: Code;
  /** canonical: "TERM" */
  signal: string;
  /** signaled, not_found, already_exited, error */
  status: string;
}

/** Snapshot is what the journal amounts to at one of its records: the digest of the canonical state, which anybody who has the journal can compute again. */
export interface Snapshot {
  /** sha256:<hex> of the state */
  digest: string;
  /** of the journal that it covers */
  records: Int64;
  size_bytes: Int64;
}

/** Source is a host path as it was found under the caller's identity: what it led to, or why nowhere. */
export interface Source {
  dev?: Int64;
  error?: Code;
  ino?: Int64;
  /** "dir" or "file" */
  kind?: string;
  /** permission bits */
  mode?: number;
  owner_uid?: number;
  /** after symbolic links */
  resolved?: string;
}

/** SpaceResult is the payload of host.workspace.commit and discard, and the answer of diff. */
export interface SpaceResult {
  /** of commit: changes that the source has now */
  applied?: Int64;
  /** of diff */
  changes?: Change[];
  error_code?: Code;
  guest_path?: string;
  /** of commit: paths that were asked for and did not change, the first of them */
  left?: string[];
  /** of commit: how many more of those */
  left_dropped?: Int64;
  /** there are changes after the last */
  more?: boolean;
  /** committed, partial, discarded, ok, error */
  status: string;
}

/** Stdin is what the command reads: a tagged variant. */
export interface Stdin {
  blob_ref?: BlobRef;
  inline_bytes?: InlineBytes;
  inline_text?: InlineText;
  /** set by Redact. Refused on input. */
  secret_digest?: string;
  /** reaches the process and nothing else */
  secret_text?: InlineText;
}

/** Target is what a session is built on: a tagged variant with one arm so far. */
export interface Target {
  local?: Local;
}

/** Terminal has an execution run on a terminal of its own (host.shell.open). */
export interface Terminal {
  /** 0 means 80 */
  cols?: number;
  /** 0 means 24 */
  rows?: number;
  /** What kind it is, for TERM: a name of terminfo's. "" leaves that to the environment, and otherwise it is xterm-256color. */
  term?: string;
}

/** Timing is how long one stage took. */
export interface Timing {
  ns: Nanoseconds;
  /** admit, resolve, policy, plan, intent, build, spawn, run, store */
  stage: string;
}

/** Tool is one tool of a profile. */
export interface Tool {
  /** as the provider's API takes it among its tools */
  definition: unknown;
  description: string;
  /** it can take away what was there */
  destructive?: boolean;
  /** the same again changes nothing more */
  idempotent?: boolean;
  /** JSON Schema of its arguments */
  input_schema: unknown;
  name: string;
  /** that a call can lead to; policy is asked about each */
  operations: Op[];
  read_only?: boolean;
}

/** ToolAnswer is the answer to a call: what the model is given, and what it is made of. */
export interface ToolAnswer {
  /** what the session's grant has of what was asked, by member */
  allowed?: { [name: string]: unknown };
  deny?: Deny[];
  error_code?: Code;
  error_message?: string;
  exec_id?: string;
  exit_code?: number;
  /** what was asked for was done; a command that ended with a status of its own was run */
  ok: boolean;
  /** of the operations that the call led to, in order; reads have none */
  receipts: Receipt[];
  /** as the provider takes it: function_call_output, custom_tool_call_output, tool_result or functionResponse */
  result: unknown;
  /** the execution goes on */
  running?: boolean;
  /** ok, running, denied, error, or the status of the operation that says no */
  status: string;
  tool: string;
  /** the text leaves something out */
  truncated?: boolean;
}

/** ToolCall is a call of a tool in a session, as a model made it. */
export interface ToolCall {
  /** as the provider has it: function_call, custom_tool_call, tool_use or functionCall */
  call: unknown;
  profile: string;
  scope?: Scope;
  session_id: string;
}

/** Candidate is a place in a file. */
export interface ToolCandidate {
  /** from 1 */
  line: Int64;
  /** of its first line, shortened */
  text: string;
}

/** ToolCatalogue is the tools of a profile: what the models of one provider are given, so that they can use a session. */
export interface ToolCatalogue {
  /** openai, anthropic, gemini or codex */
  profile: string;
  tools: Tool[];
}

/** Change is what became of one file: its digests before and after are evidence, and the precondition of the next change. */
export interface ToolChange {
  after_sha256?: string;
  before_sha256?: string;
  /** of a move */
  from?: string;
  /** add, update, delete, move, mkdir */
  kind: string;
  /** resolved; quoted where it must be */
  path: string;
  /** after */
  size_bytes?: Int64;
}

/** ChangeResult is the result of host.fs.mkdir, move and remove. */
export interface ToolChangeResult {
  clamped?: ToolClamp[];
  /** of mkdir */
  created?: boolean;
  error_code?: Code;
  error_message?: string;
  path?: string;
  /** of remove: how many names */
  removed?: Int64;
  status: string;
  to?: string;
}

/** Clamp says that a request-level limit was lowered (C17), or what stood in where the request named none (C18: source "runtime"). */
export interface ToolClamp {
  effective: Int64;
  field: string;
  /** -1: without limit */
  requested: Int64;
  /** "capability" or "runtime" */
  source: string;
}

/** Content is what a file is to hold: a tagged variant. */
export interface ToolContent {
  blob_ref?: BlobRef;
  inline_bytes?: InlineBytes;
  inline_text?: InlineText;
  /** in its place, in records. Refused on input. */
  secret_digest?: string;
  /** reaches the file and no record; the answer has no digest of it */
  secret_text?: InlineText;
}

/** Edit replaces text in a file (host.fs.edit_file). */
export interface ToolEdit {
  dry_run?: boolean;
  /** without the fuzzy rules */
  exact_only?: boolean;
  expected_sha256?: string;
  /** alias of path (R199) */
  file_path?: string;
  new_string: string;
  old_string: string;
  path?: string;
  /** the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not */
  path_bytes?: Uint8Array;
  replace_all?: boolean;
}

/** EditResult is the result of host.fs.edit_file. */
export interface ToolEditResult {
  applied?: boolean;
  /** the first of them; of not_found, what comes nearest */
  candidate_at?: ToolCandidate[];
  /** places that match, when ambiguous */
  candidates?: Int64;
  change?: ToolChange;
  clamped?: ToolClamp[];
  error_code?: Code;
  error_message?: string;
  /** "exact" or "fuzzy" */
  match?: string;
  /** that were applied (C29) */
  replacements?: Int64;
  status: string;
  summary_text?: string;
}

/** Glob asks for the files whose paths a pattern matches (host.fs.glob), newest first. */
export interface ToolGlob {
  case_insensitive?: boolean;
  /** absent is 100 */
  max_results?: Int64;
  output_mode?: string;
  path?: string;
  /** the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not */
  path_bytes?: Uint8Array;
  pattern: string;
  respect_ignore?: boolean;
}

/** GlobResult is the result of host.fs.glob. */
export interface ToolGlobResult {
  clamped?: ToolClamp[];
  /** before max_results */
  count?: Int64;
  error_code?: Code;
  error_message?: string;
  overflow?: ToolOverflow;
  /** one a line; never inline_bytes */
  paths?: ToolOutput;
  status: string;
  summary_text?: string;
  truncated?: boolean;
}

/** Grep asks for the lines that a pattern matches (host.fs.grep). */
export interface ToolGrep {
  after?: Int64;
  /** lines of context */
  before?: Int64;
  case_insensitive?: boolean;
  fixed_strings?: boolean;
  /** without a slash it means any depth; "!" before it excludes */
  glob_filter?: string;
  /** matching lines of one file that count; 0 is all */
  max_per_file?: Int64;
  /** matching lines in the answer; absent is 100 */
  max_results?: Int64;
  /** the pattern may match across lines, and . matches their ends */
  multiline?: boolean;
  output_mode?: string;
  path?: string;
  /** the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not */
  path_bytes?: Uint8Array;
  pattern: string;
  respect_ignore?: boolean;
}

/** GrepResult is the result of host.fs.grep. */
export interface ToolGrepResult {
  /** "native" or "ripgrep" */
  backend?: string;
  /** why that one; absent where only the native one is there */
  backend_reason?: string;
  clamped?: ToolClamp[];
  error_code?: Code;
  error_message?: string;
  /** that the worker itself has looked at */
  files_scanned?: Int64;
  /** before max_results */
  match_count?: Int64;
  /** path:line:text, context path-line-text; never inline_bytes */
  matches?: ToolOutput;
  overflow?: ToolOverflow;
  status: string;
  summary_text?: string;
  truncated?: boolean;
}

/** List asks for the names in a directory (host.fs.list_dir). */
export interface ToolList {
  /** absent is 100 */
  max_results?: Int64;
  output_mode?: string;
  path?: string;
  /** the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not */
  path_bytes?: Uint8Array;
}

/** ListResult is the result of host.fs.list_dir. */
export interface ToolListResult {
  clamped?: ToolClamp[];
  /** before max_results */
  count?: Int64;
  /** one a line, "/" behind directories; never inline_bytes */
  entries?: ToolOutput;
  error_code?: Code;
  error_message?: string;
  overflow?: ToolOverflow;
  status: string;
  summary_text?: string;
  truncated?: boolean;
}

/** Mkdir makes a directory (host.fs.mkdir). */
export interface ToolMkdir {
  /** and a directory that is there already is no conflict */
  create_parents?: boolean;
  path?: string;
  /** the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not */
  path_bytes?: Uint8Array;
}

/** Move renames a file, a directory or a link (host.fs.move). */
export interface ToolMove {
  /** a file that is there is replaced; never a directory */
  overwrite?: boolean;
  path?: string;
  /** the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not */
  path_bytes?: Uint8Array;
  to?: string;
  to_bytes?: Uint8Array;
}

/** Output is bytes in the form that size and limits choose: a tagged variant. */
export interface ToolOutput {
  blob?: BlobOutput;
  inline_bytes?: InlineBytes;
  inline_text?: InlineText;
}

/** Overflow says by how much a required inline output was too large. */
export interface ToolOverflow {
  limit_bytes: Int64;
  size_bytes: Int64;
}

/** Patch changes any number of files, all or none (host.fs.apply_patch). */
export interface ToolPatch {
  dry_run?: boolean;
  patch: ToolPatchText;
  /** "v4a" (default) or "unified" */
  patch_format?: string;
}

/** PatchError is one reason why a patch does not apply, with what is needed to mend it. */
export interface ToolPatchError {
  /** what is there */
  actual?: string[];
  code: Code;
  /** lines that were looked for */
  expected?: string[];
  /** of the file, from 1 */
  hunk?: Int64;
  message: string;
  /** where the file comes nearest to them */
  nearest?: ToolCandidate;
  /** in the patch, from 1 */
  patch_line?: Int64;
  path?: string;
}

/** PatchOps counts what a patch does. */
export interface ToolPatchOps {
  add: Int64;
  delete: Int64;
  move: Int64;
  update: Int64;
}

/** PatchResult is the result of host.fs.apply_patch. */
export interface ToolPatchResult {
  /** in the order of the patch */
  changed_paths?: string[];
  changes?: ToolChange[];
  clamped?: ToolClamp[];
  dry_run?: boolean;
  error_code?: Code;
  error_message?: string;
  /** bounded; the first says what Code says */
  errors?: ToolPatchError[];
  files_changed?: Int64;
  ops?: ToolPatchOps;
  status: string;
  summary_text?: string;
}

/** PatchText is a patch: a tagged variant. */
export interface ToolPatchText {
  blob_ref?: BlobRef;
  inline_text?: InlineText;
}

/** Read asks for a file, or a range of it (host.fs.read_file). */
export interface ToolRead {
  /** "utf8" (default) or "bytes" */
  encoding?: string;
  /** absent: all, up to the ceilings */
  max_bytes?: Int64;
  /** 0: all */
  max_lines?: Int64;
  offset_bytes?: Int64;
  output_mode?: string;
  path?: string;
  /** the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not */
  path_bytes?: Uint8Array;
  /** from 1; 0 does not count lines */
  start_line?: Int64;
}

/** ReadResult is the result of host.fs.read_file. */
export interface ToolReadResult {
  clamped?: ToolClamp[];
  /** absent when the range is empty */
  content?: ToolOutput;
  error_code?: Code;
  error_message?: string;
  /** of the range, when lines were asked for */
  first_line?: Int64;
  last_line?: Int64;
  /** permission bits */
  mode?: number;
  mtime_ns?: Nanoseconds;
  /** where the rest begins, when truncated */
  next_offset_bytes?: Int64;
  /** of require_inline */
  overflow?: ToolOverflow;
  /** resolved; quoted where it must be */
  path?: string;
  /** of the whole file, when the range is that */
  sha256?: string;
  /** of the whole file */
  size_bytes?: Int64;
  status: string;
  truncated?: boolean;
}

/** Remove removes a file, a link or a directory (host.fs.remove). */
export interface ToolRemove {
  path?: string;
  /** the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not */
  path_bytes?: Uint8Array;
  /** what is in a directory too */
  recursive?: boolean;
}

/** Result is what came of a Request. */
export interface ToolResult {
  /** host.fs.mkdir, move and remove */
  change?: ToolChangeResult;
  edit?: ToolEditResult;
  glob?: ToolGlobResult;
  grep?: ToolGrepResult;
  list?: ToolListResult;
  op: Op;
  patch?: ToolPatchResult;
  read?: ToolReadResult;
  /** host.fs.stat and host.fs.exists */
  stat?: ToolStatResult;
  write?: ToolWriteResult;
}

/** Stat asks what is at a path (host.fs.stat), or only whether there is anything (host.fs.exists). */
export interface ToolStat {
  /** of a symbolic link at the path, the link itself */
  link?: boolean;
  path?: string;
  /** the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not */
  path_bytes?: Uint8Array;
}

/** StatResult is the result of host.fs.stat, and of host.fs.exists (Exists only). */
export interface ToolStatResult {
  clamped?: ToolClamp[];
  error_code?: Code;
  error_message?: string;
  exists?: boolean;
  gid?: number;
  is_dir?: boolean;
  /** file, dir, symlink, fifo, socket, device */
  kind?: string;
  link_to?: string;
  /** permission bits, with set-id and sticky */
  mode?: number;
  mtime_ns?: Nanoseconds;
  path?: string;
  size_bytes?: Int64;
  status: string;
  uid?: number;
}

/** Write gives a file its content (host.fs.write_file). */
export interface ToolWrite {
  content: ToolContent;
  create_parents?: boolean;
  /** set or take the executable bits; absent leaves them */
  executable?: boolean;
  /** of what is replaced, 64 hex digits; "absent" expects no file */
  expected_sha256?: string;
  /** "overwrite" (default) or "create_new" */
  mode?: string;
  path?: string;
  /** the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not */
  path_bytes?: Uint8Array;
}

/** WriteResult is the result of host.fs.write_file. */
export interface ToolWriteResult {
  change?: ToolChange;
  clamped?: ToolClamp[];
  created?: boolean;
  error_code?: Code;
  error_message?: string;
  new_mtime_ns?: Nanoseconds;
  status: string;
  written_bytes?: Int64;
}

/** Traffic is what went through the relay of a session. */
export interface Traffic {
  connections: Int64;
  dns_questions: Int64;
  received_bytes: Int64;
  refused: Int64;
  sent_bytes: Int64;
}

/** Usage is what an execution, or a session, used. */
export interface Usage {
  /** user and system time of the whole tree */
  cpu_ns?: Nanoseconds;
  /** sessions only */
  executions?: Int64;
  oom_kills?: Int64;
  peak_memory_bytes?: Int64;
  wall_ns?: Nanoseconds;
}

/** Verdict decides about an operation that waits (host.approval.approve and deny). */
export interface Verdict {
  approval_id: string;
  comment?: string;
  /** token of what was reviewed; approve needs it */
  review?: string;
  scope?: Scope;
}

/** VerdictResult is the payload of host.approval.approve and deny. */
export interface VerdictResult {
  /** it had been decided so before */
  again?: boolean;
  approval_id: string;
  decided_by?: Principal;
  error_code?: Code;
  /** of what waited */
  intent_id?: string;
  /** that it has now */
  state?: ApprovalState;
}

/** Version says which supervisor answers and what it serves. */
export interface Version {
  /** 1 */
  api: number;
  operations: Op[];
  version: string;
}

/** Workspace names an overlay of a session, and paths in it (host.workspace.diff, commit and discard). */
export interface Workspace {
  /** of diff: the last path of the answer before */
  after?: string;
  /** of diff: its path_bytes, if it has them */
  after_bytes?: Uint8Array;
  /** of the mount; "" where the session has one overlay */
  guest_path?: string;
  /** of diff: how many changes in one answer; 0 means 1000 */
  limit?: Int64;
  /** of commit: relative to it, and all that is below them; absent is everything */
  paths?: string[];
  /** of commit: one beside each of paths, "" where that is UTF-8; paths have U+FFFD for what is not */
  paths_bytes?: Uint8Array[];
  scope?: Scope;
  session_id: string;
}

/** Every route: what its path, URL and body take, and what answers with which status. */
export interface Routes {
  /** List what the caller waits for leave for, or may decide, in the order in which it last changed: a page, after wait_ms if it would be empty. */
  "GET /v1/approvals": {
    path: Record<string, never>;
    query: { state?: string; after?: string; limit?: Int64; wait_ms?: Int64 };
    body: undefined;
    replies: { 200: ApprovalList; 403: Receipt; };
    event: never;
  };

  /** Show what leave is asked for. */
  "GET /v1/approvals/{approval_id}": {
    path: { approval_id: string };
    query: Record<string, never>;
    body: undefined;
    replies: { 200: Approval; 403: Receipt; };
    event: never;
  };

  /** Give leave to what was reviewed. It is carried out if it still is what would be done. */
  "POST /v1/approvals/{approval_id}/approve": {
    path: { approval_id: string };
    query: Record<string, never>;
    body: Omit<Verdict, "approval_id">;
    replies: { 200: Receipt; 403: Receipt; };
    event: never;
  };

  /** Deny leave; or take one's own request back. */
  "POST /v1/approvals/{approval_id}/deny": {
    path: { approval_id: string };
    query: Record<string, never>;
    body: Omit<Verdict, "approval_id">;
    replies: { 200: Receipt; 403: Receipt; };
    event: never;
  };

  /** List everybody's receipts that fit, newest first: a page, and where the next begins. */
  "GET /v1/audit": {
    path: Record<string, never>;
    query: { session_id?: string; exec_id?: string; op?: string; outcome?: string; since_ns?: string; until_ns?: string; uid?: string; agent_id?: string; world_id?: string; chat_id?: string; code?: string; rule?: string; path?: string; order?: string; after?: string; limit?: Int64 };
    body: undefined;
    replies: { 200: ReceiptList; 403: Receipt; };
    event: never;
  };

  /** Store content, which is the body. */
  "PUT /v1/blobs": {
    path: Record<string, never>;
    query: { blob_ref?: string };
    body: Uint8Array;
    replies: { 200: Receipt; 403: Receipt; };
    event: never;
  };

  /** Get the content of a blob. */
  "GET /v1/blobs/{blob_ref}": {
    path: { blob_ref: string };
    query: Record<string, never>;
    body: undefined;
    replies: { 200: Uint8Array; 403: Receipt; };
    event: never;
  };

  /** Say what a session can be held by here, as far as host and operator go. */
  "GET /v1/capabilities": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    replies: { 200: Capabilities; 403: Receipt; };
    event: never;
  };

  /** Sign all that the journal has so far. Kept elsewhere, the note finds a journal that was rolled back. */
  "GET /v1/checkpoint": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    replies: { 200: Checkpoint; 403: Receipt; };
    event: never;
  };

  /** End a session. */
  "POST /v1/close": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: SessionClose;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** Ask what policy would say to an operation. Nothing is started. */
  "POST /v1/decide": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: Ask;
    replies: { 200: Decision; 403: Receipt; };
    event: never;
  };

  /** Take no new sessions and executions, or with undo again. */
  "POST /v1/drain": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: Drain;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** Read the event log of the caller: a page, after wait_ms if it would be empty, or a stream. */
  "GET /v1/events": {
    path: Record<string, never>;
    query: { after?: string; limit?: Int64; wait_ms?: Int64 };
    body: undefined;
    replies: { 200: NoticeList; 403: Receipt; 410: NoticeList; };
    event: Notice;
  };

  /** Run a command in a session. As a stream, its output comes as events, and the receipt last. With wait false or wait_ms, what has not ended by then is answered with its ids. */
  "POST /v1/exec": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: Exec;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: Event;
  };

  /** List the caller's executions, newest first. */
  "GET /v1/executions": {
    path: Record<string, never>;
    query: { session_id?: string; state?: string; active?: boolean; label?: string[]; limit?: Int64; after?: string };
    body: undefined;
    replies: { 200: ProcessList; 403: Receipt; };
    event: never;
  };

  /** Cancel every live execution of the caller's that fits. */
  "POST /v1/executions/stop": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: ProcessStop;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** Take an execution that has ended out of the registry. Its receipt stays. */
  "DELETE /v1/executions/{exec_id}": {
    path: { exec_id: string };
    query: Record<string, never>;
    body: undefined;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** Show an execution. */
  "GET /v1/executions/{exec_id}": {
    path: { exec_id: string };
    query: Record<string, never>;
    body: undefined;
    replies: { 200: Process; 403: Receipt; };
    event: never;
  };

  /** End an execution with its whole tree. */
  "POST /v1/executions/{exec_id}/cancel": {
    path: { exec_id: string };
    query: Record<string, never>;
    body: Omit<ProcessCancel, "exec_id">;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** Write to the stdin of an execution, or close it. */
  "POST /v1/executions/{exec_id}/input": {
    path: { exec_id: string };
    query: Record<string, never>;
    body: Omit<ProcessInput, "exec_id">;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** Change the time limit of an execution. */
  "POST /v1/executions/{exec_id}/modify": {
    path: { exec_id: string };
    query: Record<string, never>;
    body: Omit<ProcessModify, "exec_id">;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** Read the output of an execution from a cursor, or from two offsets: a page, after wait_ms if it would be empty, or a stream with frames, and the receipt last. */
  "GET /v1/executions/{exec_id}/output": {
    path: { exec_id: string };
    query: { after?: string; stdout?: Int64; stderr?: Int64; wait_ms?: Int64; max_bytes?: Int64 };
    body: undefined;
    replies: { 200: Pending; 403: Receipt; 410: Pending; };
    event: Event;
  };

  /** Freeze an execution. */
  "POST /v1/executions/{exec_id}/pause": {
    path: { exec_id: string };
    query: Record<string, never>;
    body: Omit<ProcessTarget, "exec_id">;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** Let an execution go on. */
  "POST /v1/executions/{exec_id}/resume": {
    path: { exec_id: string };
    query: Record<string, never>;
    body: Omit<ProcessTarget, "exec_id">;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** Deliver a signal to an execution. */
  "POST /v1/executions/{exec_id}/signal": {
    path: { exec_id: string };
    query: Record<string, never>;
    body: Omit<ProcessSignal, "exec_id">;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** Show an execution when it has ended, or after wait_ms. */
  "GET /v1/executions/{exec_id}/wait": {
    path: { exec_id: string };
    query: { wait_ms?: Int64 };
    body: undefined;
    replies: { 200: Process; 403: Receipt; };
    event: never;
  };

  /** Show what the machine offers and the operator allows. */
  "GET /v1/host": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    replies: { 200: HostInfo; 403: Receipt; };
    event: never;
  };

  /** List the caller's operations with effect, newest first. */
  "GET /v1/intents": {
    path: Record<string, never>;
    query: { session_id?: string; limit?: Int64 };
    body: undefined;
    replies: { 200: IntentList; 403: Receipt; };
    event: never;
  };

  /** Show an operation with effect, in flight or settled. */
  "GET /v1/intents/{intent_id}": {
    path: { intent_id: string };
    query: Record<string, never>;
    body: undefined;
    replies: { 200: Intent; 403: Receipt; };
    event: never;
  };

  /** Read the frames of an intent: a page, after wait_ms if it would be empty, or a stream, and the receipt last. */
  "GET /v1/intents/{intent_id}/frames": {
    path: { intent_id: string };
    query: { after?: string; limit?: Int64; wait_ms?: Int64 };
    body: undefined;
    replies: { 200: FrameList; 403: Receipt; };
    event: Event;
  };

  /** Give the supervisor's log another level, until it starts or reads its configuration again. */
  "POST /v1/log/level": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: LogLevel;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** Get this document. */
  "GET /v1/openapi.json": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    replies: { 200: unknown; };
    event: never;
  };

  /** Carry out an operation by its name or alias; the body is its parameters. */
  "POST /v1/ops/{op}": {
    path: { op: string };
    query: Record<string, never>;
    body: { [name: string]: unknown };
    replies: { 200: Receipt; 403: Receipt; };
    event: never;
  };

  /** Say which revisions of the policy decide, and why the last candidate does not. */
  "GET /v1/policy": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    replies: { 200: PolicyStatus; 403: Receipt; };
    event: never;
  };

  /** Have the policy that is there now decide, once it has been validated. */
  "POST /v1/policy/activate": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: PolicyActivate;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** Validate the policy that is there now, and say what its activation would mean to the open sessions. */
  "POST /v1/policy/preview": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: PolicyActivate;
    replies: { 200: PolicyPreview; 403: Receipt; };
    event: never;
  };

  /** Say what keeps the supervisor from being quiet. */
  "GET /v1/quiescence": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    replies: { 200: Quiescence; 403: Receipt; };
    event: never;
  };

  /** List the caller's receipts, newest first. */
  "GET /v1/receipts": {
    path: Record<string, never>;
    query: { session_id?: string; exec_id?: string; op?: string; outcome?: string; since_ns?: string; until_ns?: string; uid?: string; agent_id?: string; world_id?: string; chat_id?: string; code?: string; rule?: string; path?: string; order?: string; after?: string; limit?: Int64 };
    body: undefined;
    replies: { 200: ReceiptList; 403: Receipt; };
    event: never;
  };

  /** Show a receipt. */
  "GET /v1/receipts/{intent_id}": {
    path: { intent_id: string };
    query: Record<string, never>;
    body: undefined;
    replies: { 200: Receipt; 403: Receipt; };
    event: never;
  };

  /** List the caller's sessions, newest first. */
  "GET /v1/sessions": {
    path: Record<string, never>;
    query: { label?: string[]; state?: string; limit?: Int64 };
    body: undefined;
    replies: { 200: SessionList; 403: Receipt; };
    event: never;
  };

  /** Open a session. */
  "POST /v1/sessions": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: SessionOpen;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** Show a session. */
  "GET /v1/sessions/{session_id}": {
    path: { session_id: string };
    query: Record<string, never>;
    body: undefined;
    replies: { 200: Session; 403: Receipt; };
    event: never;
  };

  /** Make the changes of an overlay to its source, all of them or those at and below paths. */
  "POST /v1/sessions/{session_id}/commit": {
    path: { session_id: string };
    query: Record<string, never>;
    body: Omit<Workspace, "session_id">;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** Read what an overlay of a session has that its source has not: a page, in order of paths. */
  "GET /v1/sessions/{session_id}/diff": {
    path: { session_id: string };
    query: { guest_path?: string; after?: string; after_bytes?: Uint8Array; limit?: Int64 };
    body: undefined;
    replies: { 200: SpaceResult; 403: Receipt; };
    event: never;
  };

  /** Empty an overlay of a session in which nothing runs. */
  "POST /v1/sessions/{session_id}/discard": {
    path: { session_id: string };
    query: Record<string, never>;
    body: Omit<Workspace, "session_id">;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** Read the event log of a session: a page, after wait_ms if it would be empty, or a stream. */
  "GET /v1/sessions/{session_id}/events": {
    path: { session_id: string };
    query: { after?: string; limit?: Int64; wait_ms?: Int64 };
    body: undefined;
    replies: { 200: NoticeList; 403: Receipt; 410: NoticeList; };
    event: Notice;
  };

  /** Reach a port on the loopback of a session, over WebSockets: one has the forwarding open, and says its name; each that says of=NAME carries a connection. */
  "GET /v1/sessions/{session_id}/forward": {
    path: { session_id: string };
    query: { port?: string; of?: string };
    body: undefined;
    replies: { 200: Uint8Array; 403: Receipt; };
    event: never;
  };

  /** Change any number of files of a session, all or none. */
  "POST /v1/sessions/{session_id}/fs/apply_patch": {
    path: { session_id: string };
    query: Record<string, never>;
    body: Omit<FilePatch, "session_id">;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** Replace text in a file of a session. */
  "POST /v1/sessions/{session_id}/fs/edit_file": {
    path: { session_id: string };
    query: Record<string, never>;
    body: Omit<FileEdit, "session_id">;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** Say whether there is anything at a path inside. */
  "POST /v1/sessions/{session_id}/fs/exists": {
    path: { session_id: string };
    query: Record<string, never>;
    body: Omit<FileStat, "session_id">;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** Find the files whose paths a pattern matches, newest first. */
  "POST /v1/sessions/{session_id}/fs/glob": {
    path: { session_id: string };
    query: Record<string, never>;
    body: Omit<FileGlob, "session_id">;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** Find the lines that a pattern matches. */
  "POST /v1/sessions/{session_id}/fs/grep": {
    path: { session_id: string };
    query: Record<string, never>;
    body: Omit<FileGrep, "session_id">;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** List the names in a directory. */
  "POST /v1/sessions/{session_id}/fs/list_dir": {
    path: { session_id: string };
    query: Record<string, never>;
    body: Omit<FileList, "session_id">;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** Make a directory. */
  "POST /v1/sessions/{session_id}/fs/mkdir": {
    path: { session_id: string };
    query: Record<string, never>;
    body: Omit<FileMkdir, "session_id">;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** Rename a file, a directory or a link. */
  "POST /v1/sessions/{session_id}/fs/move": {
    path: { session_id: string };
    query: Record<string, never>;
    body: Omit<FileMove, "session_id">;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** Read a file of a session, or a range of it. */
  "POST /v1/sessions/{session_id}/fs/read_file": {
    path: { session_id: string };
    query: Record<string, never>;
    body: Omit<FileRead, "session_id">;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** Remove a file, a link or a directory. */
  "POST /v1/sessions/{session_id}/fs/remove": {
    path: { session_id: string };
    query: Record<string, never>;
    body: Omit<FileRemove, "session_id">;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** Say what is at a path inside. */
  "POST /v1/sessions/{session_id}/fs/stat": {
    path: { session_id: string };
    query: Record<string, never>;
    body: Omit<FileStat, "session_id">;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** Give a file of a session its content. */
  "POST /v1/sessions/{session_id}/fs/write_file": {
    path: { session_id: string };
    query: Record<string, never>;
    body: Omit<FileWrite, "session_id">;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** Take a part of a session's network away. What is reached through it is cut off. */
  "POST /v1/sessions/{session_id}/narrow": {
    path: { session_id: string };
    query: Record<string, never>;
    body: Omit<SessionNarrow, "session_id">;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** Freeze everything in a session. */
  "POST /v1/sessions/{session_id}/pause": {
    path: { session_id: string };
    query: Record<string, never>;
    body: Omit<SessionTarget, "session_id">;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** Let everything in a session go on. */
  "POST /v1/sessions/{session_id}/resume": {
    path: { session_id: string };
    query: Record<string, never>;
    body: Omit<SessionTarget, "session_id">;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** Say how the supervisor was set up, without what could let somebody in somewhere, and which level its log has. */
  "GET /v1/settings": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    replies: { 200: Settings; 403: Receipt; };
    event: never;
  };

  /** Open a shell: a command on a terminal of its own. It is answered with its ids when its prompt is there, or after wait_ms. */
  "POST /v1/shells": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: ShellOpen;
    replies: { 200: Receipt; 202: Shell; 403: Receipt; };
    event: never;
  };

  /** Show a shell: its state, its prompt, its commands, who is attached. */
  "GET /v1/shells/{exec_id}": {
    path: { exec_id: string };
    query: Record<string, never>;
    body: undefined;
    replies: { 200: Shell; 403: Receipt; };
    event: never;
  };

  /** Sit down at a shell, over a WebSocket: what is sent is typed, what comes out is sent. With observe, only the latter. */
  "GET /v1/shells/{exec_id}/attach": {
    path: { exec_id: string };
    query: { after?: string; observe?: string; takeover?: string; cols?: string; rows?: string };
    body: undefined;
    replies: { 200: Uint8Array; 403: Receipt; };
    event: never;
  };

  /** Hang up, and kill what is left after the grace. */
  "POST /v1/shells/{exec_id}/close": {
    path: { exec_id: string };
    query: Record<string, never>;
    body: Omit<ShellClose, "exec_id">;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** Type into a shell, and send its signals. */
  "POST /v1/shells/{exec_id}/input": {
    path: { exec_id: string };
    query: Record<string, never>;
    body: Omit<ShellInput, "exec_id">;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** Read the output of a shell from a token on, with prompts and exit codes: a page, after wait_ms if it would be empty, or a stream. */
  "GET /v1/shells/{exec_id}/output": {
    path: { exec_id: string };
    query: { after?: string; wait_ms?: Int64; max_bytes?: Int64 };
    body: undefined;
    replies: { 200: ShellOutput; 403: Receipt; };
    event: ShellOutput;
  };

  /** Get what a shell looked like from its beginning on, as an asciicast v2; of one that goes on, what there is. */
  "GET /v1/shells/{exec_id}/recording": {
    path: { exec_id: string };
    query: { input?: string };
    body: undefined;
    replies: { 200: Uint8Array; 403: Receipt; };
    event: never;
  };

  /** Give the terminal of a shell another size. */
  "POST /v1/shells/{exec_id}/resize": {
    path: { exec_id: string };
    query: Record<string, never>;
    body: Omit<ShellResize, "exec_id">;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** Have a shell that is at its prompt run one command, and wait for its end. */
  "POST /v1/shells/{exec_id}/run": {
    path: { exec_id: string };
    query: Record<string, never>;
    body: Omit<ShellRun, "exec_id">;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** Deliver a signal to every live execution of a session. */
  "POST /v1/signal": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: SessionSignal;
    replies: { 200: Receipt; 202: Pending; 403: Receipt; };
    event: never;
  };

  /** Digest everything that the supervisor knows, as its journal tells it. */
  "GET /v1/snapshot": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    replies: { 200: Snapshot; 403: Receipt; };
    event: never;
  };

  /** Get the tools of a profile as its models know them: openai, anthropic, gemini or codex. */
  "GET /v1/tools": {
    path: Record<string, never>;
    query: { profile?: string };
    body: undefined;
    replies: { 200: ToolCatalogue; };
    event: never;
  };

  /** Carry out a call of a tool as a model made it, by the operations that it leads to, and answer in the provider's form. */
  "POST /v1/tools/call": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: ToolCall;
    replies: { 200: ToolAnswer; 403: Receipt; };
    event: never;
  };

  /** Say who answers and what it serves. */
  "GET /v1/version": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    replies: { 200: Version; };
    event: never;
  };
}

/** What a client has to know of a route: whether it takes a key, whether it can be asked again as it is, and what it answers with. */
export interface Route {
  readonly key: boolean;
  readonly repeatable: boolean;
  readonly body?: string;
  readonly replies: Readonly<Record<number, string>>;
  readonly event?: string;
}

export const routes: Readonly<Record<keyof Routes, Route>> = {
  "GET /v1/approvals": { key: false, repeatable: true, replies: { 200: "ApprovalList", 403: "Receipt", } },
  "GET /v1/approvals/{approval_id}": { key: false, repeatable: true, replies: { 200: "Approval", 403: "Receipt", } },
  "POST /v1/approvals/{approval_id}/approve": { key: true, repeatable: false, replies: { 200: "Receipt", 403: "Receipt", }, body: "Verdict" },
  "POST /v1/approvals/{approval_id}/deny": { key: true, repeatable: false, replies: { 200: "Receipt", 403: "Receipt", }, body: "Verdict" },
  "GET /v1/audit": { key: false, repeatable: true, replies: { 200: "ReceiptList", 403: "Receipt", } },
  "PUT /v1/blobs": { key: true, repeatable: false, replies: { 200: "Receipt", 403: "Receipt", }, body: "bytes" },
  "GET /v1/blobs/{blob_ref}": { key: false, repeatable: true, replies: { 200: "bytes", 403: "Receipt", } },
  "GET /v1/capabilities": { key: false, repeatable: true, replies: { 200: "Capabilities", 403: "Receipt", } },
  "GET /v1/checkpoint": { key: false, repeatable: true, replies: { 200: "Checkpoint", 403: "Receipt", } },
  "POST /v1/close": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "SessionClose" },
  "POST /v1/decide": { key: false, repeatable: true, replies: { 200: "Decision", 403: "Receipt", }, body: "Ask" },
  "POST /v1/drain": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "Drain" },
  "GET /v1/events": { key: false, repeatable: true, replies: { 200: "NoticeList", 403: "Receipt", 410: "NoticeList", }, event: "Notice" },
  "POST /v1/exec": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "Exec", event: "Event" },
  "GET /v1/executions": { key: false, repeatable: true, replies: { 200: "ProcessList", 403: "Receipt", } },
  "POST /v1/executions/stop": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "ProcessStop" },
  "DELETE /v1/executions/{exec_id}": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", } },
  "GET /v1/executions/{exec_id}": { key: false, repeatable: true, replies: { 200: "Process", 403: "Receipt", } },
  "POST /v1/executions/{exec_id}/cancel": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "ProcessCancel" },
  "POST /v1/executions/{exec_id}/input": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "ProcessInput" },
  "POST /v1/executions/{exec_id}/modify": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "ProcessModify" },
  "GET /v1/executions/{exec_id}/output": { key: false, repeatable: true, replies: { 200: "Pending", 403: "Receipt", 410: "Pending", }, event: "Event" },
  "POST /v1/executions/{exec_id}/pause": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "ProcessTarget" },
  "POST /v1/executions/{exec_id}/resume": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "ProcessTarget" },
  "POST /v1/executions/{exec_id}/signal": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "ProcessSignal" },
  "GET /v1/executions/{exec_id}/wait": { key: false, repeatable: true, replies: { 200: "Process", 403: "Receipt", } },
  "GET /v1/host": { key: false, repeatable: true, replies: { 200: "HostInfo", 403: "Receipt", } },
  "GET /v1/intents": { key: false, repeatable: true, replies: { 200: "IntentList", 403: "Receipt", } },
  "GET /v1/intents/{intent_id}": { key: false, repeatable: true, replies: { 200: "Intent", 403: "Receipt", } },
  "GET /v1/intents/{intent_id}/frames": { key: false, repeatable: true, replies: { 200: "FrameList", 403: "Receipt", }, event: "Event" },
  "POST /v1/log/level": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "LogLevel" },
  "GET /v1/openapi.json": { key: false, repeatable: true, replies: { 200: "*", } },
  "POST /v1/ops/{op}": { key: true, repeatable: false, replies: { 200: "Receipt", 403: "Receipt", }, body: "*" },
  "GET /v1/policy": { key: false, repeatable: true, replies: { 200: "PolicyStatus", 403: "Receipt", } },
  "POST /v1/policy/activate": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "PolicyActivate" },
  "POST /v1/policy/preview": { key: false, repeatable: true, replies: { 200: "PolicyPreview", 403: "Receipt", }, body: "PolicyActivate" },
  "GET /v1/quiescence": { key: false, repeatable: true, replies: { 200: "Quiescence", 403: "Receipt", } },
  "GET /v1/receipts": { key: false, repeatable: true, replies: { 200: "ReceiptList", 403: "Receipt", } },
  "GET /v1/receipts/{intent_id}": { key: false, repeatable: true, replies: { 200: "Receipt", 403: "Receipt", } },
  "GET /v1/sessions": { key: false, repeatable: true, replies: { 200: "SessionList", 403: "Receipt", } },
  "POST /v1/sessions": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "SessionOpen" },
  "GET /v1/sessions/{session_id}": { key: false, repeatable: true, replies: { 200: "Session", 403: "Receipt", } },
  "POST /v1/sessions/{session_id}/commit": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "Workspace" },
  "GET /v1/sessions/{session_id}/diff": { key: false, repeatable: true, replies: { 200: "SpaceResult", 403: "Receipt", } },
  "POST /v1/sessions/{session_id}/discard": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "Workspace" },
  "GET /v1/sessions/{session_id}/events": { key: false, repeatable: true, replies: { 200: "NoticeList", 403: "Receipt", 410: "NoticeList", }, event: "Notice" },
  "GET /v1/sessions/{session_id}/forward": { key: false, repeatable: true, replies: { 200: "bytes", 403: "Receipt", } },
  "POST /v1/sessions/{session_id}/fs/apply_patch": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "FilePatch" },
  "POST /v1/sessions/{session_id}/fs/edit_file": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "FileEdit" },
  "POST /v1/sessions/{session_id}/fs/exists": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "FileStat" },
  "POST /v1/sessions/{session_id}/fs/glob": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "FileGlob" },
  "POST /v1/sessions/{session_id}/fs/grep": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "FileGrep" },
  "POST /v1/sessions/{session_id}/fs/list_dir": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "FileList" },
  "POST /v1/sessions/{session_id}/fs/mkdir": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "FileMkdir" },
  "POST /v1/sessions/{session_id}/fs/move": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "FileMove" },
  "POST /v1/sessions/{session_id}/fs/read_file": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "FileRead" },
  "POST /v1/sessions/{session_id}/fs/remove": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "FileRemove" },
  "POST /v1/sessions/{session_id}/fs/stat": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "FileStat" },
  "POST /v1/sessions/{session_id}/fs/write_file": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "FileWrite" },
  "POST /v1/sessions/{session_id}/narrow": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "SessionNarrow" },
  "POST /v1/sessions/{session_id}/pause": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "SessionTarget" },
  "POST /v1/sessions/{session_id}/resume": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "SessionTarget" },
  "GET /v1/settings": { key: false, repeatable: true, replies: { 200: "Settings", 403: "Receipt", } },
  "POST /v1/shells": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Shell", 403: "Receipt", }, body: "ShellOpen" },
  "GET /v1/shells/{exec_id}": { key: false, repeatable: true, replies: { 200: "Shell", 403: "Receipt", } },
  "GET /v1/shells/{exec_id}/attach": { key: false, repeatable: true, replies: { 200: "bytes", 403: "Receipt", } },
  "POST /v1/shells/{exec_id}/close": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "ShellClose" },
  "POST /v1/shells/{exec_id}/input": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "ShellInput" },
  "GET /v1/shells/{exec_id}/output": { key: false, repeatable: true, replies: { 200: "ShellOutput", 403: "Receipt", }, event: "ShellOutput" },
  "GET /v1/shells/{exec_id}/recording": { key: false, repeatable: true, replies: { 200: "bytes", 403: "Receipt", } },
  "POST /v1/shells/{exec_id}/resize": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "ShellResize" },
  "POST /v1/shells/{exec_id}/run": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "ShellRun" },
  "POST /v1/signal": { key: true, repeatable: false, replies: { 200: "Receipt", 202: "Pending", 403: "Receipt", }, body: "SessionSignal" },
  "GET /v1/snapshot": { key: false, repeatable: true, replies: { 200: "Snapshot", 403: "Receipt", } },
  "GET /v1/tools": { key: false, repeatable: true, replies: { 200: "ToolCatalogue", } },
  "POST /v1/tools/call": { key: false, repeatable: false, replies: { 200: "ToolAnswer", 403: "Receipt", }, body: "ToolCall" },
  "GET /v1/version": { key: false, repeatable: true, replies: { 200: "Version", } },
};

/** Where documents have what JSON has no word for: nanoseconds and bytes, also in lists ([]) and by name ({}). */
export const shapes: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  Approval: { asked_at_ns: "ns", deadline_ns: "ns", decided_at_ns: "ns", reviewed: "Reviewed", },
  ApprovalList: { approvals: "[]Approval", },
  Ask: { cancel: "ProcessCancel", close: "SessionClose", exec: "Exec", input: "ProcessInput", modify: "ProcessModify", open: "SessionOpen", signal: "SessionSignal", stop: "ProcessStop", workspace: "Workspace", },
  BlobOutput: { preview_bytes: "bytes", },
  Ceiling: { cpu_time_ns: "ns", idle_ns: "ns", timeout_ns: "ns", ttl_ns: "ns", },
  Ceilings: { cpu_time_ns: "ns", },
  Change: { link_bytes: "bytes", path_bytes: "bytes", },
  Chunk: { at_ns: "ns", bytes: "bytes", },
  CloseResult: { ended_at_ns: "ns", usage: "Usage", },
  ControlResult: { timeout_ns: "ns", },
  Decision: { grant: "Grant", require_approval: "RequireApproval", },
  Denial: { at_ns: "ns", },
  Event: { at_ns: "ns", bytes: "bytes", frame: "Frame", receipt: "Receipt", },
  Exec: { limits: "Limits", stdin: "Stdin", timeout_ns: "ns", },
  ExecResult: { denials: "[]Denial", ended_at_ns: "ns", recording: "Recording", started_at_ns: "ns", stderr: "Output", stdout: "Output", usage: "Usage", },
  FileEdit: { path_bytes: "bytes", },
  FileGlob: { path_bytes: "bytes", },
  FileGrep: { path_bytes: "bytes", },
  FileList: { path_bytes: "bytes", },
  FileMkdir: { path_bytes: "bytes", },
  FileMove: { path_bytes: "bytes", to_bytes: "bytes", },
  FileRead: { path_bytes: "bytes", },
  FileRemove: { path_bytes: "bytes", },
  FileStat: { path_bytes: "bytes", },
  FileTool: { edit: "ToolEdit", glob: "ToolGlob", grep: "ToolGrep", list: "ToolList", mkdir: "ToolMkdir", move: "ToolMove", read: "ToolRead", remove: "ToolRemove", stat: "ToolStat", write: "ToolWrite", },
  FileWrite: { content: "ToolContent", path_bytes: "bytes", },
  Frame: { at_ns: "ns", payload: "FramePayload", },
  FrameList: { frames: "[]Frame", receipt: "Receipt", },
  FramePayload: { elapsed_ns: "ns", kill_at_ns: "ns", timeout_ns: "ns", },
  Grant: { ceilings: "Ceilings", exec: "GrantExec", expires_at_ns: "ns", idle_timeout_ns: "ns", ttl_ns: "ns", },
  GrantExec: { default_timeout_ns: "ns", max_timeout_ns: "ns", },
  HostInfo: { ceiling: "Ceiling", policy_workers: "PolicyWorkers", },
  InlineBytes: { bytes: "bytes", },
  Intent: { admitted_at_ns: "ns", age_ns: "ns", settled_at_ns: "ns", },
  IntentList: { intents: "[]Intent", },
  Limits: { cpu_time_ns: "ns", },
  Load: { cpu_ns: "ns", sampled_at_ns: "ns", },
  Notice: { at_ns: "ns", },
  NoticeList: { events: "[]Notice", },
  OpenResult: { expires_at_ns: "ns", grant: "Grant", started_at_ns: "ns", },
  Output: { blob: "BlobOutput", inline_bytes: "InlineBytes", },
  Payload: { close: "CloseResult", control: "ControlResult", exec: "ExecResult", file: "ToolResult", open: "OpenResult", policy: "PolicyResult", shell: "ShellResult", signal: "SignalResult", workspace: "SpaceResult", },
  Pending: { output: "[]Chunk", receipt: "Receipt", },
  PolicyPreview: { active: "PolicyRevision", blocking: "Quiescence", candidate: "PolicyRevision", },
  PolicyRefusal: { at_ns: "ns", },
  PolicyResult: { blocking: "Quiescence", revision: "PolicyRevision", },
  PolicyRevision: { activated_at_ns: "ns", },
  PolicyStatus: { active: "PolicyRevision", pinned: "[]PolicyRevision", refused: "PolicyRefusal", },
  PolicyWorkers: { cpu_time_ns: "ns", },
  Process: { duration_ns: "ns", ended_at_ns: "ns", queued_at_ns: "ns", started_at_ns: "ns", usage: "Usage", },
  ProcessCancel: { grace_timeout_ns: "ns", },
  ProcessInput: { data: "Stdin", },
  ProcessList: { processes: "[]Process", },
  ProcessModify: { timeout_ns: "ns", },
  ProcessStop: { grace_timeout_ns: "ns", },
  Quiescence: { intents: "[]Intent", },
  Read: { since_ns: "ns", until_ns: "ns", },
  Receipt: { admitted_at_ns: "ns", approval: "Approval", payload: "Payload", settled_at_ns: "ns", timings: "[]Timing", },
  ReceiptList: { receipts: "[]Receipt", },
  Recording: { cast: "Output", duration_ns: "ns", },
  Request: { cancel: "ProcessCancel", close: "SessionClose", exec: "Exec", file: "FileTool", input: "ProcessInput", modify: "ProcessModify", open: "SessionOpen", read: "Read", shell_close: "ShellClose", shell_input: "ShellInput", shell_run: "ShellRun", signal: "SessionSignal", stop: "ProcessStop", workspace: "Workspace", },
  RequireApproval: { timeout_ns: "ns", },
  Reviewed: { grant: "Grant", request: "Request", require_approval: "RequireApproval", },
  Session: { ended_at_ns: "ns", expires_at_ns: "ns", grant: "Grant", idle_at_ns: "ns", load: "Load", started_at_ns: "ns", usage: "Usage", },
  SessionClose: { grace_timeout_ns: "ns", },
  SessionList: { sessions: "[]Session", },
  SessionOpen: { idle_timeout_ns: "ns", limits: "Limits", session_ttl_ns: "ns", },
  SessionSignal: { grace_timeout_ns: "ns", },
  Shell: { command: "ShellCommand", commands: "[]ShellCommand", duration_ns: "ns", ended_at_ns: "ns", queued_at_ns: "ns", started_at_ns: "ns", usage: "Usage", },
  ShellChunk: { at_ns: "ns", bytes: "bytes", },
  ShellClose: { grace_timeout_ns: "ns", },
  ShellCommand: { ended_at_ns: "ns", started_at_ns: "ns", },
  ShellInput: { data: "Stdin", },
  ShellOpen: { limits: "Limits", stdin: "Stdin", timeout_ns: "ns", },
  ShellOutput: { chunks: "[]ShellChunk", receipt: "Receipt", },
  ShellResult: { stdout: "Output", },
  ShellRun: { timeout_ns: "ns", },
  SignalResult: { ended_at_ns: "ns", },
  SpaceResult: { changes: "[]Change", },
  Stdin: { inline_bytes: "InlineBytes", },
  Timing: { ns: "ns", },
  ToolAnswer: { receipts: "[]Receipt", },
  ToolContent: { inline_bytes: "InlineBytes", },
  ToolEdit: { path_bytes: "bytes", },
  ToolGlob: { path_bytes: "bytes", },
  ToolGlobResult: { paths: "ToolOutput", },
  ToolGrep: { path_bytes: "bytes", },
  ToolGrepResult: { matches: "ToolOutput", },
  ToolList: { path_bytes: "bytes", },
  ToolListResult: { entries: "ToolOutput", },
  ToolMkdir: { path_bytes: "bytes", },
  ToolMove: { path_bytes: "bytes", to_bytes: "bytes", },
  ToolOutput: { blob: "BlobOutput", inline_bytes: "InlineBytes", },
  ToolRead: { path_bytes: "bytes", },
  ToolReadResult: { content: "ToolOutput", mtime_ns: "ns", },
  ToolRemove: { path_bytes: "bytes", },
  ToolResult: { glob: "ToolGlobResult", grep: "ToolGrepResult", list: "ToolListResult", read: "ToolReadResult", stat: "ToolStatResult", write: "ToolWriteResult", },
  ToolStat: { path_bytes: "bytes", },
  ToolStatResult: { mtime_ns: "ns", },
  ToolWrite: { content: "ToolContent", path_bytes: "bytes", },
  ToolWriteResult: { new_mtime_ns: "ns", },
  Usage: { cpu_ns: "ns", wall_ns: "ns", },
  Workspace: { after_bytes: "bytes", paths_bytes: "[]bytes", },
};
