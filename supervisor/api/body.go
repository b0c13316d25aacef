package api

import "github.com/stockade-dev/stockade/sandbox/file"

// SetParameters decodes body as the parameters of r.Op, which is canonical, and makes
// them part of the request. It returns the scope that the body declares, and leaves the
// principal alone.
func (r *Request) SetParameters(body []byte) (Scope, *Error) {
	set, ok := bodies[r.Op]
	if !ok {
		set = parametersOf(func(r *Request, p *Read) Scope { r.Read = p; return Scope{} })
	}
	return set(r, body)
}

// bodies are the operations whose parameters are not a [Read].
var bodies = map[Op]func(*Request, []byte) (Scope, *Error){
	OpSessionOpen:   parametersOf(func(r *Request, p *SessionOpen) Scope { r.Open = p; return p.Scope }),
	OpExec:          parametersOf(func(r *Request, p *Exec) Scope { r.Exec = p; return p.Scope }),
	OpShellOpen:     parametersOf(func(r *Request, p *Exec) Scope { p.asShell(); r.Exec = p; return p.Scope }),
	OpShellInput:    parametersOf(func(r *Request, p *ShellInput) Scope { r.Keys = p; return p.Scope }),
	OpShellResize:   parametersOf(func(r *Request, p *ShellResize) Scope { r.Resize = p; return p.Scope }),
	OpShellAttach:   parametersOf(func(r *Request, p *ShellAttach) Scope { r.Attach = p; return p.Scope }),
	OpShellRun:      parametersOf(func(r *Request, p *ShellRun) Scope { r.Run = p; return p.Scope }),
	OpShellClose:    parametersOf(func(r *Request, p *ShellClose) Scope { r.Hangup = p; return p.Scope }),
	OpSessionSignal: parametersOf(func(r *Request, p *SessionSignal) Scope { r.Signal = p; return p.Scope }),
	OpSessionClose:  parametersOf(func(r *Request, p *SessionClose) Scope { r.Close = p; return p.Scope }),
	OpSessionPause:  parametersOf(setSession),
	OpSessionResume: parametersOf(setSession),
	OpProcessInput: parametersOf(func(r *Request, p *ProcessInput) Scope {
		p.Close = p.Close || r.RequestedKind == "effect.close"
		r.Input = p
		return p.Scope
	}),
	OpProcessSignal: parametersOf(func(r *Request, p *ProcessSignal) Scope { r.Deliver = p; return p.Scope }),
	OpProcessModify: parametersOf(func(r *Request, p *ProcessModify) Scope { r.Modify = p; return p.Scope }),
	OpProcessPause:  parametersOf(setProcess),
	OpProcessResume: parametersOf(setProcess),
	OpProcessDelete: parametersOf(setProcess),
	OpProcessCancel: parametersOf(func(r *Request, p *ProcessCancel) Scope { r.Cancel = p; return p.Scope }),
	OpProcessStop:   parametersOf(func(r *Request, p *ProcessStop) Scope { r.Stop = p; return p.Scope }),
	OpDrain:         parametersOf(func(r *Request, p *Drain) Scope { r.Drain = p; return p.Scope }),
	OpLogLevel:      parametersOf(func(r *Request, p *LogLevel) Scope { r.Log = p; return p.Scope }),
	OpBlobPut:       parametersOf(func(r *Request, p *BlobPut) Scope { r.Blob = p; return Scope{} }),
	OpSessionNarrow: parametersOf(func(r *Request, p *SessionNarrow) Scope { r.Narrow = p; return p.Scope }),

	OpSessionForward: parametersOf(func(r *Request, p *SessionForward) Scope { r.Forward = p; return p.Scope }),

	OpApprove: parametersOf(setVerdict),
	OpDeny:    parametersOf(setVerdict),

	OpPolicyPreview:  parametersOf(setActivate),
	OpPolicyActivate: parametersOf(setActivate),

	OpWorkspaceDiff:    parametersOf(setSpace),
	OpWorkspaceCommit:  parametersOf(setSpace),
	OpWorkspaceDiscard: parametersOf(setSpace),

	OpFileRead: parametersOf(func(r *Request, p *FileRead) Scope {
		return r.fileTool(p.SessionID, p.Scope, file.Request{Read: &p.Read})
	}),
	OpFileWrite: parametersOf(func(r *Request, p *FileWrite) Scope {
		return r.fileTool(p.SessionID, p.Scope, file.Request{Write: &p.Write})
	}),
	OpFileEdit: parametersOf(func(r *Request, p *FileEdit) Scope {
		return r.fileTool(p.SessionID, p.Scope, file.Request{Edit: &p.Edit})
	}),
	OpFilePatch: parametersOf(func(r *Request, p *FilePatch) Scope {
		return r.fileTool(p.SessionID, p.Scope, file.Request{Patch: &p.Patch})
	}),
	OpFileGrep: parametersOf(func(r *Request, p *FileGrep) Scope {
		return r.fileTool(p.SessionID, p.Scope, file.Request{Grep: &p.Grep})
	}),
	OpFileGlob: parametersOf(func(r *Request, p *FileGlob) Scope {
		return r.fileTool(p.SessionID, p.Scope, file.Request{Glob: &p.Glob})
	}),
	OpFileStat:   parametersOf(setFileStat),
	OpFileExists: parametersOf(setFileStat),
	OpFileList: parametersOf(func(r *Request, p *FileList) Scope {
		return r.fileTool(p.SessionID, p.Scope, file.Request{List: &p.List})
	}),
	OpFileMkdir: parametersOf(func(r *Request, p *FileMkdir) Scope {
		return r.fileTool(p.SessionID, p.Scope, file.Request{Mkdir: &p.Mkdir})
	}),
	OpFileMove: parametersOf(func(r *Request, p *FileMove) Scope {
		return r.fileTool(p.SessionID, p.Scope, file.Request{Move: &p.Move})
	}),
	OpFileRemove: parametersOf(func(r *Request, p *FileRemove) Scope {
		return r.fileTool(p.SessionID, p.Scope, file.Request{Remove: &p.Remove})
	}),
}

func setSession(r *Request, p *SessionTarget) Scope { r.Session = p; return p.Scope }
func setProcess(r *Request, p *ProcessTarget) Scope { r.Process = p; return p.Scope }
func setVerdict(r *Request, p *Verdict) Scope       { r.Verdict = p; return p.Scope }
func setSpace(r *Request, p *Workspace) Scope       { r.Space = p; return p.Scope }
func setActivate(r *Request, p *PolicyActivate) Scope {
	r.Activate = p
	return p.Scope
}

// Reads reports whether the operation is one without effect: it can be repeated as it is.
func (r *Request) Reads() bool {
	return r.Read != nil || r.Op == OpWorkspaceDiff || r.Op == OpPolicyPreview
}

// Ref returns the execution that an operation on one names, or nil for other operations.
func (r *Request) Ref() *ProcessRef {
	switch {
	case r.Input != nil:
		return &r.Input.ProcessRef
	case r.Deliver != nil:
		return &r.Deliver.ProcessRef
	case r.Modify != nil:
		return &r.Modify.ProcessRef
	case r.Process != nil:
		return &r.Process.ProcessRef
	case r.Cancel != nil:
		return &r.Cancel.ProcessRef
	case r.Keys != nil:
		return &r.Keys.ProcessRef
	case r.Resize != nil:
		return &r.Resize.ProcessRef
	case r.Hangup != nil:
		return &r.Hangup.ProcessRef
	case r.Attach != nil:
		return &r.Attach.ProcessRef
	case r.Run != nil:
		return &r.Run.ProcessRef
	}
	return nil
}

// InSession is the session that an operation with effect, or a diff, names; "" if it names none.
func (r *Request) InSession() string {
	if id := r.SessionID(); id != nil {
		return *id
	}
	return ""
}

// SessionID is where an operation with effect, or a diff, has the session that it is in; nil if that is nowhere.
func (r *Request) SessionID() *string {
	switch {
	case r.Exec != nil:
		return &r.Exec.SessionID
	case r.Signal != nil:
		return &r.Signal.SessionID
	case r.Close != nil:
		return &r.Close.SessionID
	case r.Session != nil:
		return &r.Session.SessionID
	case r.Stop != nil:
		return &r.Stop.SessionID
	case r.Space != nil:
		return &r.Space.SessionID
	case r.Narrow != nil:
		return &r.Narrow.SessionID
	case r.Forward != nil:
		return &r.Forward.SessionID
	case r.File != nil:
		return &r.File.SessionID
	}
	return nil
}

func parametersOf[T any](set func(*Request, *T) Scope) func(*Request, []byte) (Scope, *Error) {
	return func(r *Request, body []byte) (Scope, *Error) {
		p, err := Decode[T](body)
		if err != nil {
			return Scope{}, err
		}
		return set(r, &p), nil
	}
}
