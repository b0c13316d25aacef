package tools

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/stockade-dev/stockade/sandbox/file"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// member is a part of a session's grant that a refusal can be held against.
type member struct {
	name string
	of   func(*api.Grant) any
}

// inFS is a member of the part that file tools have; without such a part nothing is allowed.
func inFS(name string, of func(*api.GrantFS) any) member {
	return member{"fs." + name, func(g *api.Grant) any {
		if g.FS == nil {
			return "no file tools are granted"
		}
		return of(g.FS)
	}}
}

var (
	fsOps        = inFS("ops", func(g *api.GrantFS) any { return g.Ops })
	fsRoots      = inFS("roots", func(g *api.GrantFS) any { return anywhere(g.Roots) })
	fsWriteRoots = inFS("write_roots", func(g *api.GrantFS) any { return anywhere(g.WriteRoots) })
	mounts       = member{"mounts", func(g *api.Grant) any {
		list := []string{}
		for _, m := range g.Mounts {
			text := m.GuestPath + ":" + m.Mode
			if len(m.Protect) > 0 {
				text += " without " + strings.Join(m.Protect, ", ")
			}
			list = append(list, text)
		}
		return list
	}}
	scratch = member{"scratch", func(g *api.Grant) any {
		list := []string{}
		for _, s := range g.Scratch {
			list = append(list, s.GuestPath)
		}
		return list
	}}
)

// anywhere says that a list that is absent constrains nothing.
func anywhere(list []string) any {
	if list == nil {
		return "any"
	}
	return list
}

// remedies are what of the grant says how far a caller may go, by the code that told him that he went too far. Codes that authors
// of policy make up are not here: their own message is the reason.
var remedies = map[api.Code][]member{
	api.Code(file.CodeOpNotAllowed):     {fsOps},
	api.Code(file.CodePathNotAllowed):   {fsRoots, fsWriteRoots},
	api.Code(file.CodePathForbidden):    {fsRoots, fsWriteRoots, mounts, scratch},
	api.Code(file.CodeForbidden):        {mounts, scratch},
	api.Code(file.CodeReadOnly):         {mounts, scratch},
	api.Code(file.CodeProtected):        {mounts},
	api.Code(file.CodeLinkNotAllowed):   {inFS("follow_symlinks", func(g *api.GrantFS) any { return cmp.Or(g.FollowSymlinks, file.FollowWithin) }), fsRoots},
	api.Code(file.CodeFormatNotAllowed): {inFS("patch_formats", func(g *api.GrantFS) any { return g.PatchFormats })},
	api.Code(file.CodeWriteBytes):       {inFS("max_write_bytes", func(g *api.GrantFS) any { return g.MaxWriteBytes })},
	api.Code(file.CodePatchBytes):       {inFS("max_patch_bytes", func(g *api.GrantFS) any { return g.MaxPatchBytes })},
	api.Code(file.CodeChangedFiles):     {inFS("max_changed_files", func(g *api.GrantFS) any { return g.MaxChangedFiles })},
	api.Code(file.CodeReplacements):     {inFS("max_edit_replacements", func(g *api.GrantFS) any { return g.MaxReplacements })},
	api.CodeCwdNotAllowed:               {{"exec.cwd_prefixes", func(g *api.Grant) any { return anywhere(g.Exec.CwdPrefixes) }}},
	api.CodeArgvLimit:                   {{"exec.max_argv", func(g *api.Grant) any { return g.Exec.MaxArgv }}},
	api.CodeArgLength:                   {{"exec.max_arg_bytes", func(g *api.Grant) any { return g.Exec.MaxArgBytes }}},
	api.CodeOutputModeNotAllowed:        {{"exec.output_modes", func(g *api.Grant) any { return anywhere(g.Exec.OutputModes) }}},
	api.CodeSignalNotAllowed:            {{"exec.signals", func(g *api.Grant) any { return anywhere(g.Exec.Signals) }}},
	api.CodeExecLimit:                   {{"ceilings.executions", func(g *api.Grant) any { return g.Ceilings.Executions }}},
}

// failed is the answer that something was not done: the sentence that the model knows, the code, the reasons, what would help, and what
// would have been allowed.
func (r *run) failed(f failure) *Answer {
	a := &Answer{Status: f.status, Code: f.code, Message: f.message, Deny: f.deny, Allowed: r.allowed(f)}
	var b strings.Builder
	b.WriteString("Error: ")
	if phrase := r.call.Profile.Phrases[f.code]; phrase != "" {
		b.WriteString(phrase + " ")
	}
	switch {
	case len(f.deny) > 0:
		b.WriteString("denied by policy")
		for _, d := range f.deny {
			fmt.Fprintf(&b, "\n  %s", d.Code)
			if d.Subject != "" {
				fmt.Fprintf(&b, " (%s)", d.Subject)
			}
			if text := cmp.Or(d.Message, d.Code.Text()); text != "" {
				b.WriteString(": " + text)
			}
		}
	default:
		fmt.Fprintf(&b, "%s: %s", f.code, cmp.Or(f.message, f.code.Text(), f.status))
	}
	mend(&b, f.result)
	for _, name := range sorted(a.Allowed) {
		v, err := json.Marshal(a.Allowed[name], json.Deterministic(true))
		if err == nil {
			fmt.Fprintf(&b, "\nallowed: %s = %s", name, v)
		}
	}
	a.Text = b.String()
	return a
}

// mend says what lets a model repair what it asked for.
func mend(b *strings.Builder, res *file.Result) {
	if res == nil {
		return
	}
	if e := res.Edit; e != nil {
		for _, c := range e.Candidates {
			fmt.Fprintf(b, "\n  line %d: %s", c.Line, c.Text)
		}
	}
	if p := res.Patch; p != nil {
		for _, e := range p.Errors {
			fmt.Fprintf(b, "\n  %s", e.Code)
			if e.Path != "" {
				fmt.Fprintf(b, " %s", e.Path)
			}
			if e.PatchLine != 0 {
				fmt.Fprintf(b, " (line %d of the patch)", e.PatchLine)
			}
			fmt.Fprintf(b, ": %s", e.Message)
			list(b, "expected", e.Expected)
			if e.Nearest != nil {
				fmt.Fprintf(b, "\n    nearest is line %d: %s", e.Nearest.Line, e.Nearest.Text)
			}
			list(b, "found", e.Actual)
		}
	}
}

func list(b *strings.Builder, name string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "\n    %s:", name)
	for _, line := range lines {
		fmt.Fprintf(b, "\n      %s", line)
	}
}

// allowed is what of the grant the failure was measured by. The session may not be shown to the caller: then nobody can say.
func (r *run) allowed(f failure) map[string]any {
	codes := []api.Code{f.code}
	for _, d := range f.deny {
		codes = append(codes, d.Code)
	}
	var wanted []member
	for _, code := range codes {
		wanted = append(wanted, remedies[code]...)
	}
	if len(wanted) == 0 || r.lost != nil {
		return nil
	}
	session, err := r.host.Session(r.ctx, r.call.SessionID)
	if err != nil || session.Grant == nil {
		return nil
	}
	out := map[string]any{}
	for _, m := range wanted {
		out[m.name] = m.of(session.Grant)
	}
	return out
}

func sorted(m map[string]any) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
