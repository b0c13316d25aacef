package api

import "github.com/stockade-dev/stockade/sandbox/file"

// Op names an operation. It is what policy is asked and what a receipt records.
type Op string

// The operations of this version.
const (
	OpSessionOpen   Op = "host.session.open"
	OpSessionGet    Op = "host.session.get"
	OpSessionList   Op = "host.session.list"
	OpSessionEvents Op = "host.session.events"
	OpSessionSignal Op = "host.session.signal"
	OpSessionPause  Op = "host.session.pause"
	OpSessionResume Op = "host.session.resume"
	OpSessionClose  Op = "host.session.close"
	OpSessionNarrow Op = "host.session.narrow"

	OpSessionForward Op = "host.session.forward"

	OpExec Op = "host.exec"

	OpWorkspaceDiff    Op = "host.workspace.diff"
	OpWorkspaceCommit  Op = "host.workspace.commit"
	OpWorkspaceDiscard Op = "host.workspace.discard"

	OpFileRead   Op = Op(file.OpRead)
	OpFileWrite  Op = Op(file.OpWrite)
	OpFileEdit   Op = Op(file.OpEdit)
	OpFilePatch  Op = Op(file.OpPatch)
	OpFileGrep   Op = Op(file.OpGrep)
	OpFileGlob   Op = Op(file.OpGlob)
	OpFileStat   Op = Op(file.OpStat)
	OpFileExists Op = Op(file.OpExists)
	OpFileList   Op = Op(file.OpList)
	OpFileMkdir  Op = Op(file.OpMkdir)
	OpFileMove   Op = Op(file.OpMove)
	OpFileRemove Op = Op(file.OpRemove)

	OpProcessGet    Op = "host.process.get"
	OpProcessList   Op = "host.process.list"
	OpProcessWait   Op = "host.process.wait"
	OpProcessWatch  Op = "host.process.watch"
	OpOutput        Op = "host.process.output"
	OpProcessInput  Op = "host.process.input"
	OpProcessSignal Op = "host.process.signal"
	OpProcessModify Op = "host.process.modify"
	OpProcessPause  Op = "host.process.pause"
	OpProcessResume Op = "host.process.resume"
	OpProcessCancel Op = "host.process.cancel"
	OpProcessDelete Op = "host.process.delete"
	OpProcessStop   Op = "host.process.stop"

	OpShellOpen   Op = "host.shell.open"
	OpShellGet    Op = "host.shell.get"
	OpShellOutput Op = "host.shell.output"
	OpShellInput  Op = "host.shell.input"
	OpShellResize Op = "host.shell.resize"
	OpShellClose  Op = "host.shell.close"
	OpShellAttach Op = "host.shell.attach"
	OpShellRun    Op = "host.shell.run"

	OpShellRecording Op = "host.shell.recording"

	OpApprovalList Op = "host.approval.list"
	OpApprovalGet  Op = "host.approval.get"
	OpApprove      Op = "host.approval.approve"
	OpDeny         Op = "host.approval.deny"

	OpEvents       Op = "host.events"
	OpIntentGet    Op = "intent.get"
	OpIntentList   Op = "intent.list"
	OpIntentFrames Op = "intent.frames"

	OpBlobPut      Op = "blob.put"
	OpBlobGet      Op = "blob.get"
	OpReceiptGet   Op = "receipt.get"
	OpReceiptList  Op = "receipt.list"
	OpCheckpoint   Op = "receipt.checkpoint"
	OpDecide       Op = "policy.decide"
	OpHostInfo     Op = "host.info"
	OpCapabilities Op = "host.capabilities"
	OpQuiescence   Op = "admin.quiescence"
	OpSnapshot     Op = "admin.snapshot"
	OpAudit        Op = "admin.receipts"
	OpDrain        Op = "admin.drain"
	OpSettings     Op = "admin.settings"
	OpLogLevel     Op = "admin.log.level"

	OpPolicyStatus   Op = "admin.policy.status"
	OpPolicyPreview  Op = "admin.policy.preview"
	OpPolicyActivate Op = "admin.policy.activate"
)

// aliases are accepted on input (C1, C7); records carry the canonical name and, as
// requested_kind, the name that was used. Those of effect.* name an intent, and are
// operations on the execution that it started.
var aliases = map[Op]Op{
	"process.session.open":   OpSessionOpen,
	"process.exec":           OpExec,
	"process.session.signal": OpSessionSignal,
	"effect.input":           OpProcessInput,
	"effect.modify":          OpProcessModify,
	"effect.pause":           OpProcessPause,
	"effect.resume":          OpProcessResume,
	"effect.cancel":          OpProcessCancel,
	"effect.close":           OpProcessInput, // with close: the end of its input
}

// Canonical returns the canonical name of op, which is op itself unless op is an alias.
func (op Op) Canonical() Op {
	if c, ok := aliases[op]; ok {
		return c
	}
	return op
}
