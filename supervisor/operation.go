package supervisor

import (
	"context"
	"slices"

	"github.com/stockade-dev/stockade/sandbox/file"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// operation is what differs between operations in the pipeline.
type operation struct {
	// admit finds what the operation is on, and takes what it needs of the registry.
	admit func(*Supervisor, *call) *refusal
	// plan turns the decision into what is going to be done.
	plan func(*Supervisor, *call) *refusal
	// abandon gives back what admit and plan took. It follows every refusal.
	abandon func(*Supervisor, *call)
	// act does it. A fault may come with a payload.
	act func(context.Context, *Supervisor, *call) (api.Payload, *api.Error)
	// settled follows the receipt; c.receipt is nil if it could not be recorded.
	settled func(*Supervisor, *call)
	// failed is the payload when nothing was done.
	failed func(code api.Code, message string) api.Payload
}

// operations with effect. Reads are in reads.
var operations = map[api.Op]operation{
	api.OpSessionOpen:      {admitOpen, planOpen, abandonOpen, actOpen, settledOpen, failedOpen},
	api.OpExec:             {admitExec, planExecution, abandonExec, actExec, settledExec, failedExec},
	api.OpShellOpen:        {admitExec, planExecution, abandonExec, actExec, settledExec, failedExec},
	api.OpShellInput:       {admitControl, planKeys, abandonInput, actKeys, nil, failedShell},
	api.OpShellResize:      {admitControl, planKeys, abandonInput, actKeys, nil, failedShell},
	api.OpShellAttach:      {admitControl, planAttach, nothing, actAttach, nil, failedShell},
	api.OpShellRun:         {admitControl, planKeys, abandonInput, actRun, nil, failedShell},
	api.OpShellClose:       {admitControl, noRefusal, nothing, actHangup, nil, failedShell},
	api.OpSessionSignal:    {admitSession, planSignal, nothing, actSignal, nil, failedSignal},
	api.OpSessionPause:     {admitSession, noRefusal, nothing, actSessionPause, nil, failedControl},
	api.OpSessionResume:    {admitSession, noRefusal, nothing, actSessionResume, nil, failedControl},
	api.OpSessionNarrow:    {admitSession, planNarrow, nothing, actNarrow, nil, failedControl},
	api.OpSessionForward:   {admitSession, planForward, nothing, actForward, nil, failedForward},
	api.OpSessionClose:     {admitSession, noRefusal, nothing, actClose, nil, failedClose},
	api.OpWorkspaceCommit:  {admitSession, planSpace, nothing, actCommit, nil, failedSpace},
	api.OpWorkspaceDiscard: {admitSession, planSpace, nothing, actDiscard, nil, failedSpace},
	api.OpFileRead:         fileTool(file.OpRead),
	api.OpFileWrite:        fileTool(file.OpWrite),
	api.OpFileEdit:         fileTool(file.OpEdit),
	api.OpFilePatch:        fileTool(file.OpPatch),
	api.OpFileGrep:         fileTool(file.OpGrep),
	api.OpFileGlob:         fileTool(file.OpGlob),
	api.OpFileStat:         fileTool(file.OpStat),
	api.OpFileExists:       fileTool(file.OpExists),
	api.OpFileList:         fileTool(file.OpList),
	api.OpFileMkdir:        fileTool(file.OpMkdir),
	api.OpFileMove:         fileTool(file.OpMove),
	api.OpFileRemove:       fileTool(file.OpRemove),
	api.OpProcessInput:     {admitControl, planInput, abandonInput, actInput, nil, failedControl},
	api.OpProcessSignal:    {admitControl, planDeliver, nothing, actDeliver, nil, failedControl},
	api.OpProcessModify:    {admitControl, planModify, nothing, actModify, nil, failedControl},
	api.OpProcessPause:     {admitControl, noRefusal, nothing, actPause, nil, failedControl},
	api.OpProcessResume:    {admitControl, noRefusal, nothing, actResume, nil, failedControl},
	api.OpProcessCancel:    {admitControl, noRefusal, nothing, actCancel, nil, failedControl},
	api.OpProcessDelete:    {admitControl, noRefusal, nothing, actDelete, settledDelete, failedControl},
	api.OpProcessStop:      {admitStop, noRefusal, nothing, actStop, nil, failedControl},
	api.OpApprove:          {admitVerdict, planVerdict, nothing, actVerdict, nil, failedVerdict},
	api.OpDeny:             {admitVerdict, planVerdict, nothing, actVerdict, nil, failedVerdict},
	api.OpDrain:            {noRefusal, noRefusal, nothing, actDrain, nil, failedControl},
	api.OpLogLevel:         {noRefusal, noRefusal, nothing, actLogLevel, nil, failedControl},
	api.OpPolicyActivate:   {noRefusal, noRefusal, nothing, actActivate, nil, failedActivate},
	api.OpBlobPut:          {admitBlob, noRefusal, nothing, actBlob, nil, failedBlob},
}

func noRefusal(*Supervisor, *call) *refusal { return nil }
func nothing(*Supervisor, *call)            {}

// admitSession finds the session that the operation is on.
func admitSession(s *Supervisor, c *call) *refusal {
	ses, err := s.registry.find(c.req.Principal, c.req.InSession())
	if err != nil {
		return faulted(err)
	}
	c.session = ses
	return nil
}

// Operations returns every operation that is served, in order of name.
func Operations() []api.Op {
	ops := slices.Clone(reads)
	for op := range operations {
		ops = append(ops, op)
	}
	slices.Sort(ops)
	return ops
}
