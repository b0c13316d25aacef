package api

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/stockade-dev/stockade/sandbox/file"
)

// FileTool asks for one file operation in a session (host.fs.*). What is asked is the request that the worker inside is
// given: nothing is said twice.
type FileTool struct {
	SessionID string `json:"session_id"`
	file.Request
	Scope Scope `json:"scope,omitzero"`
}

// The bodies of file operations: the session beside the parameters.
type (
	// FileRead asks for a file, or a range of it (host.fs.read_file).
	FileRead struct {
		SessionID string `json:"session_id"`
		file.Read
		Scope Scope `json:"scope,omitzero"`
	}
	// FileWrite gives a file its content (host.fs.write_file).
	FileWrite struct {
		SessionID string `json:"session_id"`
		file.Write
		Scope Scope `json:"scope,omitzero"`
	}
	// FileEdit replaces text in a file (host.fs.edit_file).
	FileEdit struct {
		SessionID string `json:"session_id"`
		file.Edit
		Scope Scope `json:"scope,omitzero"`
	}
	// FilePatch changes any number of files, all or none (host.fs.apply_patch).
	FilePatch struct {
		SessionID string `json:"session_id"`
		file.Patch
		Scope Scope `json:"scope,omitzero"`
	}
	// FileGrep asks for the lines that a pattern matches (host.fs.grep).
	FileGrep struct {
		SessionID string `json:"session_id"`
		file.Grep
		Scope Scope `json:"scope,omitzero"`
	}
	// FileGlob asks for the files whose paths a pattern matches, newest first (host.fs.glob).
	FileGlob struct {
		SessionID string `json:"session_id"`
		file.Glob
		Scope Scope `json:"scope,omitzero"`
	}
	// FileStat asks what is at a path (host.fs.stat), or only whether there is anything (host.fs.exists).
	FileStat struct {
		SessionID string `json:"session_id"`
		file.Stat
		Scope Scope `json:"scope,omitzero"`
	}
	// FileList asks for the names in a directory (host.fs.list_dir).
	FileList struct {
		SessionID string `json:"session_id"`
		file.List
		Scope Scope `json:"scope,omitzero"`
	}
	// FileMkdir makes a directory (host.fs.mkdir).
	FileMkdir struct {
		SessionID string `json:"session_id"`
		file.Mkdir
		Scope Scope `json:"scope,omitzero"`
	}
	// FileMove renames a file, a directory or a link (host.fs.move).
	FileMove struct {
		SessionID string `json:"session_id"`
		file.Move
		Scope Scope `json:"scope,omitzero"`
	}
	// FileRemove removes a file, a link or a directory (host.fs.remove).
	FileRemove struct {
		SessionID string `json:"session_id"`
		file.Remove
		Scope Scope `json:"scope,omitzero"`
	}
)

// fileOps are the file operations.
var fileOps = func() (ops []Op) {
	for _, row := range file.Ops {
		ops = append(ops, Op(row.Op))
	}
	return ops
}()

// fileTool makes parameters part of the request.
func (r *Request) fileTool(session string, scope Scope, ask file.Request) Scope {
	ask.Op = file.Op(r.Op)
	r.File = &FileTool{session, ask, scope}
	return scope
}

func setFileStat(r *Request, p *FileStat) Scope {
	return r.fileTool(p.SessionID, p.Scope, file.Request{Stat: &p.Stat})
}

// fileChecks are those of every file operation. What is asked has its own: see [file.Request.Validate].
var fileChecks = []check{
	{CodeSessionNotFound, func(r *Request) string { return idFault("session_id", r.File.SessionID) }},
	{CodeInvalidLabel, func(r *Request) string { return scopeFault(r.File.Scope) }},
	{CodeInvalidParams, func(r *Request) string {
		if Op(r.File.Op) != r.Op {
			return "the request and its parameters name two operations"
		}
		return ""
	}},
}

// fault says what is wrong with the parameters whatever the machine. What a tool answers with a status of its own, such
// as a pattern that is none, is not.
func (t *FileTool) fault() *Error {
	if f := t.Request.Validate(); f != nil && f.Status == file.Error {
		return Errorf(Code(f.Code), "%s", f.Message)
	}
	return nil
}

// unmarshalContent and unmarshalPatchText accept both forms of a variant.
func unmarshalContent(dec *jsontext.Decoder, c *file.Content) error {
	type plain file.Content
	return unmarshalVariant(dec, (*plain)(c))
}

func unmarshalPatchText(dec *jsontext.Decoder, p *file.PatchText) error {
	type plain file.PatchText
	return unmarshalVariant(dec, (*plain)(p))
}
