package server

import (
	"fmt"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// A route is one row of the table.
type route struct {
	method, path string
	op           api.Op // what policy is asked
	serve        func(*call)
	summary      string
	query        []string // parameters of the URL that it takes
	in, out      any      // types of the body and of the answer; nil means none, []byte means content
}

// Routes that ask policy nothing, or something that only the request says.
const (
	public  api.Op = "(public)"  // who answers, and by which contract
	derived api.Op = "(derived)" // the operation that the path names, asked as its own route would
)

// routes is the whole interface.
func routes() []route {
	page := []string{"after", "limit", "wait_ms"}
	receipts := []string{"session_id", "exec_id", "op", "outcome", "since_ns", "until_ns", "uid", "agent_id", "world_id", "chat_id", "code", "rule", "path", "order", "after", "limit"}
	return []route{
		{"POST", "/v1/sessions", api.OpSessionOpen, operate, "Open a session.", nil, api.SessionOpen{}, api.Receipt{}},
		{"GET", "/v1/sessions", api.OpSessionList, read, "List the caller's sessions, newest first.", []string{"label", "state", "limit"}, nil, api.SessionList{}},
		{"GET", "/v1/sessions/{session_id}", api.OpSessionGet, read, "Show a session.", nil, nil, api.Session{}},
		{"GET", "/v1/sessions/{session_id}/events", api.OpSessionEvents, read,
			"Read the event log of a session: a page, after wait_ms if it would be empty, or a stream.", page, nil, api.NoticeList{}},
		{"POST", "/v1/sessions/{session_id}/pause", api.OpSessionPause, control, "Freeze everything in a session.", nil, api.SessionTarget{}, api.Receipt{}},
		{"POST", "/v1/sessions/{session_id}/resume", api.OpSessionResume, control, "Let everything in a session go on.", nil, api.SessionTarget{}, api.Receipt{}},
		{"POST", "/v1/sessions/{session_id}/narrow", api.OpSessionNarrow, control, "Take a part of a session's network away. What is reached through it is cut off.",
			nil, api.SessionNarrow{}, api.Receipt{}},
		{"GET", "/v1/sessions/{session_id}/forward", api.OpSessionForward, forward,
			"Reach a port on the loopback of a session, over WebSockets: one has the forwarding open, and says its name; each that says of=NAME carries a connection.",
			[]string{"port", "of"}, nil, []byte{}},
		{"GET", "/v1/sessions/{session_id}/diff", api.OpWorkspaceDiff, readDiff, "Read what an overlay of a session has that its source has not: a page, in order of paths.",
			[]string{"guest_path", "after", "after_bytes", "limit"}, nil, api.SpaceResult{}},
		{"POST", "/v1/sessions/{session_id}/commit", api.OpWorkspaceCommit, control, "Make the changes of an overlay to its source, all of them or those at and below paths.",
			nil, api.Workspace{}, api.Receipt{}},
		{"POST", "/v1/sessions/{session_id}/discard", api.OpWorkspaceDiscard, control, "Empty an overlay of a session in which nothing runs.", nil, api.Workspace{}, api.Receipt{}},
		{"POST", "/v1/sessions/{session_id}/fs/read_file", api.OpFileRead, control, "Read a file of a session, or a range of it.", nil, api.FileRead{}, api.Receipt{}},
		{"POST", "/v1/sessions/{session_id}/fs/write_file", api.OpFileWrite, control, "Give a file of a session its content.", nil, api.FileWrite{}, api.Receipt{}},
		{"POST", "/v1/sessions/{session_id}/fs/edit_file", api.OpFileEdit, control, "Replace text in a file of a session.", nil, api.FileEdit{}, api.Receipt{}},
		{"POST", "/v1/sessions/{session_id}/fs/apply_patch", api.OpFilePatch, control, "Change any number of files of a session, all or none.", nil, api.FilePatch{}, api.Receipt{}},
		{"POST", "/v1/sessions/{session_id}/fs/grep", api.OpFileGrep, control, "Find the lines that a pattern matches.", nil, api.FileGrep{}, api.Receipt{}},
		{"POST", "/v1/sessions/{session_id}/fs/glob", api.OpFileGlob, control, "Find the files whose paths a pattern matches, newest first.", nil, api.FileGlob{}, api.Receipt{}},
		{"POST", "/v1/sessions/{session_id}/fs/stat", api.OpFileStat, control, "Say what is at a path inside.", nil, api.FileStat{}, api.Receipt{}},
		{"POST", "/v1/sessions/{session_id}/fs/exists", api.OpFileExists, control, "Say whether there is anything at a path inside.", nil, api.FileStat{}, api.Receipt{}},
		{"POST", "/v1/sessions/{session_id}/fs/list_dir", api.OpFileList, control, "List the names in a directory.", nil, api.FileList{}, api.Receipt{}},
		{"POST", "/v1/sessions/{session_id}/fs/mkdir", api.OpFileMkdir, control, "Make a directory.", nil, api.FileMkdir{}, api.Receipt{}},
		{"POST", "/v1/sessions/{session_id}/fs/move", api.OpFileMove, control, "Rename a file, a directory or a link.", nil, api.FileMove{}, api.Receipt{}},
		{"POST", "/v1/sessions/{session_id}/fs/remove", api.OpFileRemove, control, "Remove a file, a link or a directory.", nil, api.FileRemove{}, api.Receipt{}},
		{"GET", "/v1/tools", public, getTools, "Get the tools of a profile as its models know them: openai, anthropic, gemini or codex.", []string{"profile"}, nil, api.ToolCatalogue{}},
		{"POST", "/v1/tools/call", derived, callTool, "Carry out a call of a tool as a model made it, by the operations that it leads to, and answer in the provider's form.",
			nil, api.ToolCall{}, api.ToolAnswer{}},
		{"POST", "/v1/signal", api.OpSessionSignal, operate, "Deliver a signal to every live execution of a session.", nil, api.SessionSignal{}, api.Receipt{}},
		{"POST", "/v1/close", api.OpSessionClose, operate, "End a session.", nil, api.SessionClose{}, api.Receipt{}},

		{"POST", "/v1/exec", api.OpExec, operate,
			"Run a command in a session. As a stream, its output comes as events, and the receipt last. With wait false or wait_ms, what has not ended by then is answered with its ids.",
			nil, api.Exec{}, api.Receipt{}},
		{"GET", "/v1/executions", api.OpProcessList, read, "List the caller's executions, newest first.",
			[]string{"session_id", "state", "active", "label", "limit", "after"}, nil, api.ProcessList{}},
		{"GET", "/v1/executions/{exec_id}", api.OpProcessGet, read, "Show an execution.", nil, nil, api.Process{}},
		{"GET", "/v1/executions/{exec_id}/wait", api.OpProcessWait, read, "Show an execution when it has ended, or after wait_ms.", []string{"wait_ms"}, nil, api.Process{}},
		{"GET", "/v1/executions/{exec_id}/output", api.OpOutput, readOutput,
			"Read the output of an execution from a cursor, or from two offsets: a page, after wait_ms if it would be empty, or a stream with frames, and the receipt last.",
			[]string{"after", "stdout", "stderr", "wait_ms", "max_bytes"}, nil, api.Pending{}},
		{"POST", "/v1/executions/{exec_id}/input", api.OpProcessInput, control, "Write to the stdin of an execution, or close it.", nil, api.ProcessInput{}, api.Receipt{}},
		{"POST", "/v1/executions/{exec_id}/signal", api.OpProcessSignal, control, "Deliver a signal to an execution.", nil, api.ProcessSignal{}, api.Receipt{}},
		{"POST", "/v1/executions/{exec_id}/modify", api.OpProcessModify, control, "Change the time limit of an execution.", nil, api.ProcessModify{}, api.Receipt{}},
		{"POST", "/v1/executions/{exec_id}/pause", api.OpProcessPause, control, "Freeze an execution.", nil, api.ProcessTarget{}, api.Receipt{}},
		{"POST", "/v1/executions/{exec_id}/resume", api.OpProcessResume, control, "Let an execution go on.", nil, api.ProcessTarget{}, api.Receipt{}},
		{"POST", "/v1/executions/{exec_id}/cancel", api.OpProcessCancel, control, "End an execution with its whole tree.", nil, api.ProcessCancel{}, api.Receipt{}},
		{"DELETE", "/v1/executions/{exec_id}", api.OpProcessDelete, control, "Take an execution that has ended out of the registry. Its receipt stays.",
			nil, nil, api.Receipt{}},
		{"POST", "/v1/executions/stop", api.OpProcessStop, operate, "Cancel every live execution of the caller's that fits.", nil, api.ProcessStop{}, api.Receipt{}},

		{"POST", "/v1/shells", api.OpShellOpen, operate,
			"Open a shell: a command on a terminal of its own. It is answered with its ids when its prompt is there, or after wait_ms.",
			nil, api.Exec{}, api.Shell{}},
		{"GET", "/v1/shells/{exec_id}", api.OpShellGet, read, "Show a shell: its state, its prompt, its commands, who is attached.", nil, nil, api.Shell{}},
		{"GET", "/v1/shells/{exec_id}/output", api.OpShellOutput, read,
			"Read the output of a shell from a token on, with prompts and exit codes: a page, after wait_ms if it would be empty, or a stream.",
			[]string{"after", "wait_ms", "max_bytes"}, nil, api.ShellOutput{}},
		{"POST", "/v1/shells/{exec_id}/input", api.OpShellInput, control, "Type into a shell, and send its signals.", nil, api.ShellInput{}, api.Receipt{}},
		{"POST", "/v1/shells/{exec_id}/resize", api.OpShellResize, control, "Give the terminal of a shell another size.", nil, api.ShellResize{}, api.Receipt{}},
		{"POST", "/v1/shells/{exec_id}/run", api.OpShellRun, control, "Have a shell that is at its prompt run one command, and wait for its end.", nil, api.ShellRun{}, api.Receipt{}},
		{"GET", "/v1/shells/{exec_id}/attach", api.OpShellAttach, attach,
			"Sit down at a shell, over a WebSocket: what is sent is typed, what comes out is sent. With observe, only the latter.",
			[]string{"after", "observe", "takeover", "cols", "rows"}, nil, []byte{}},
		{"GET", "/v1/shells/{exec_id}/recording", api.OpShellRecording, read,
			"Get what a shell looked like from its beginning on, as an asciicast v2; of one that goes on, what there is.", []string{"input"}, nil, []byte{}},
		{"POST", "/v1/shells/{exec_id}/close", api.OpShellClose, control, "Hang up, and kill what is left after the grace.", nil, api.ShellClose{}, api.Receipt{}},

		{"GET", "/v1/approvals", api.OpApprovalList, read,
			"List what the caller waits for leave for, or may decide, in the order in which it last changed: a page, after wait_ms if it would be empty.",
			[]string{"state", "after", "limit", "wait_ms"}, nil, api.ApprovalList{}},
		{"GET", "/v1/approvals/{approval_id}", api.OpApprovalGet, read, "Show what leave is asked for.", nil, nil, api.Approval{}},
		{"POST", "/v1/approvals/{approval_id}/approve", api.OpApprove, control, "Give leave to what was reviewed. It is carried out if it still is what would be done.",
			nil, api.Verdict{}, api.Receipt{}},
		{"POST", "/v1/approvals/{approval_id}/deny", api.OpDeny, control, "Deny leave; or take one's own request back.", nil, api.Verdict{}, api.Receipt{}},

		{"GET", "/v1/events", api.OpEvents, read, "Read the event log of the caller: a page, after wait_ms if it would be empty, or a stream.", page, nil, api.NoticeList{}},
		{"GET", "/v1/intents", api.OpIntentList, read, "List the caller's operations with effect, newest first.", []string{"session_id", "limit"}, nil, api.IntentList{}},
		{"GET", "/v1/intents/{intent_id}", api.OpIntentGet, read, "Show an operation with effect, in flight or settled.", nil, nil, api.Intent{}},
		{"GET", "/v1/intents/{intent_id}/frames", api.OpIntentFrames, read,
			"Read the frames of an intent: a page, after wait_ms if it would be empty, or a stream, and the receipt last.", page, nil, api.FrameList{}},

		{"PUT", "/v1/blobs", api.OpBlobPut, putBlob, "Store content, which is the body.", []string{"blob_ref"}, []byte{}, api.Receipt{}},
		{"GET", "/v1/blobs/{blob_ref}", api.OpBlobGet, read, "Get the content of a blob.", nil, nil, []byte{}},
		{"GET", "/v1/receipts", api.OpReceiptList, read, "List the caller's receipts, newest first.",
			receipts, nil, api.ReceiptList{}},
		{"GET", "/v1/receipts/{intent_id}", api.OpReceiptGet, read, "Show a receipt.", nil, nil, api.Receipt{}},
		{"GET", "/v1/checkpoint", api.OpCheckpoint, read,
			"Sign all that the journal has so far. Kept elsewhere, the note finds a journal that was rolled back.", nil, nil, api.Checkpoint{}},

		{"POST", "/v1/decide", api.OpDecide, decide, "Ask what policy would say to an operation. Nothing is started.", nil, api.Ask{}, api.Decision{}},
		{"GET", "/v1/host", api.OpHostInfo, read, "Show what the machine offers and the operator allows.", nil, nil, api.HostInfo{}},
		{"GET", "/v1/capabilities", api.OpCapabilities, read, "Say what a session can be held by here, as far as host and operator go.", nil, nil, api.Capabilities{}},
		{"GET", "/v1/quiescence", api.OpQuiescence, read, "Say what keeps the supervisor from being quiet.", nil, nil, api.Quiescence{}},
		{"GET", "/v1/snapshot", api.OpSnapshot, read, "Digest everything that the supervisor knows, as its journal tells it.", nil, nil, api.Snapshot{}},
		{"GET", "/v1/audit", api.OpAudit, read, "List everybody's receipts that fit, newest first: a page, and where the next begins.",
			receipts, nil, api.ReceiptList{}},
		{"POST", "/v1/drain", api.OpDrain, operate, "Take no new sessions and executions, or with undo again.", nil, api.Drain{}, api.Receipt{}},
		{"GET", "/v1/settings", api.OpSettings, read, "Say how the supervisor was set up, without what could let somebody in somewhere, and which level its log has.", nil, nil, api.Settings{}},
		{"POST", "/v1/log/level", api.OpLogLevel, operate, "Give the supervisor's log another level, until it starts or reads its configuration again.", nil, api.LogLevel{}, api.Receipt{}},
		{"GET", "/v1/policy", api.OpPolicyStatus, read, "Say which revisions of the policy decide, and why the last candidate does not.", nil, nil, api.PolicyStatus{}},
		{"POST", "/v1/policy/preview", api.OpPolicyPreview, operate, "Validate the policy that is there now, and say what its activation would mean to the open sessions.",
			nil, api.PolicyActivate{}, api.PolicyPreview{}},
		{"POST", "/v1/policy/activate", api.OpPolicyActivate, operate, "Have the policy that is there now decide, once it has been validated.", nil, api.PolicyActivate{}, api.Receipt{}},
		{"GET", "/v1/version", public, getVersion, "Say who answers and what it serves.", nil, nil, api.Version{}},
		{"GET", "/v1/openapi.json", public, getOpenAPI, "Get this document.", nil, nil, map[string]any{}},
		{"POST", "/v1/ops/{op}", derived, operateNamed, "Carry out an operation by its name or alias; the body is its parameters.", nil, map[string]any{}, api.Receipt{}},
	}
}

// check refuses a row that could be served without policy being asked.
func (r route) check() error {
	switch {
	case r.op == "":
		return fmt.Errorf("bug: route %s %s names no operation", r.method, r.path)
	case r.op != public && r.op != derived && r.op != r.op.Canonical():
		return fmt.Errorf("bug: route %s %s names an alias", r.method, r.path)
	case r.serve == nil:
		return fmt.Errorf("bug: route %s %s has no handler", r.method, r.path)
	}
	return nil
}
