package supervisor

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// plan turns permission into mechanism: what was granted, with the host objects that
// were judged, as the Spec that the runner builds. It adds no right of its own: what
// the grant does not name is not in the Spec. It is pure.
//
// It fails with *api.Error when the grant rests on a host path that could not be
// reached under the caller's identity, or on something that this host cannot enforce.
func plan(req *api.Request, g *api.Grant, f rego.Facts, host sandbox.Host) (sandbox.Spec, error) {
	if missing := lacking(g, host); len(missing) > 0 {
		return sandbox.Spec{}, unsupported(missing)
	}
	spec := sandbox.Spec{
		Caller:   caller(req.Principal),
		Identity: sandbox.Identity{UID: g.Identity.UID, GID: g.Identity.GID, Groups: g.Identity.Groups, Capabilities: g.Identity.Capabilities},
		Hostname: g.Hostname,
		Workdir:  g.Workdir,
		Network:  g.Network.Spec(),
		Seccomp:  g.Seccomp,
		Limits: sandbox.Limits{
			MemoryBytes:      g.Ceilings.MemoryBytes,
			CPUMillis:        g.Ceilings.CPUMillis,
			PIDs:             g.Ceilings.PIDs,
			Files:            g.Ceilings.Files,
			CPUWeight:        g.Ceilings.CPUWeight,
			CPUTime:          time.Duration(g.Ceilings.CPUTimeNS),
			IOBytesPerSecond: g.Ceilings.IOBytesPerSecond,
		},
		Degraded: slices.DeleteFunc(slices.Clone(g.Degraded), host.Has), // what is there is never left out
		Verify:   g.Verify,
	}
	var err error
	if spec.Root, err = planRoot(req.Open.Target.Local.Root, g.Root, f); err != nil {
		return sandbox.Spec{}, err
	}
	for _, m := range g.Mounts {
		from, err := source(f, m.HostPath)
		if err != nil {
			return sandbox.Spec{}, err
		}
		spec.Mounts = append(spec.Mounts, planMount(m, from))
	}
	for _, s := range g.Scratch {
		spec.Scratch = append(spec.Scratch, sandbox.Scratch{Target: s.GuestPath, Bytes: s.Bytes, Inodes: s.Inodes})
	}
	return spec, nil
}

// lacking are the layers that the host does not have and the grant demands: those of every session, less
// what may be done without, and those of its own.
func lacking(g *api.Grant, host sandbox.Host) []sandbox.Layer {
	missing := host.Missing(g.Degraded...)
	for _, own := range []struct {
		layer  string
		needed bool
	}{
		{sandbox.LayerOverlay, slices.ContainsFunc(g.Mounts, func(m api.GrantMount) bool { return m.Mode == api.ModeOverlay })},
		{sandbox.LayerNetwork, g.Network.Mode != "none"},
		{sandbox.LayerIO, g.Ceilings.IOBytesPerSecond != 0},
	} {
		if own.needed && !can(host, own.layer) {
			missing = append(missing, sandbox.Layer{Name: own.layer})
		}
	}
	return missing
}

// planMount opens a mount for writing at the exact words only.
func planMount(m api.GrantMount, from sandbox.Source) sandbox.Mount {
	mount := sandbox.Mount{Source: from, Target: m.GuestPath, ReadOnly: true, Digest: m.Class == classInput}
	switch m.Mode {
	case "rw":
		mount.ReadOnly = false
	case api.ModeOverlay:
		mount.ReadOnly, mount.Overlay = false, &sandbox.Overlay{Bytes: m.Bytes, Inodes: m.Inodes}
	}
	if !mount.ReadOnly && from.Kind == "dir" { // a file has nothing below it
		mount.Protected = m.Protect
	}
	return mount
}

// classInput marks a mount whose content the receipt vouches for.
const classInput = "input"

// planRoot takes the arm from the grant and the paths from the request: policy grants
// an arm, and the paths were judged as facts.
func planRoot(ask api.Root, granted string, f rego.Facts) (sandbox.Root, error) {
	root := sandbox.Root{Kind: sandbox.RootKind(granted)}
	switch {
	case root.Kind == sandbox.RootHost:
		return root, nil
	case root.Kind == sandbox.RootDir && ask.Dir != nil:
		dir, err := source(f, ask.Dir.Path)
		root.Dir = &dir
		return root, err
	case root.Kind == sandbox.RootPaths && ask.Paths != nil:
		for _, p := range ask.Paths.Paths {
			from, err := source(f, p)
			if err != nil {
				return sandbox.Root{}, err
			}
			root.Paths = append(root.Paths, from)
		}
		return root, nil
	}
	return sandbox.Root{}, api.Errorf(api.CodeInvalidRoot, "root %q is granted, but the request does not name its paths", granted)
}

// source is the object that was judged under this path.
func source(f rego.Facts, asked string) (sandbox.Source, error) {
	s, ok := f.Sources[asked]
	switch {
	case !ok:
		return sandbox.Source{}, fmt.Errorf("bug: %s was granted without having been looked at", asked)
	case s.Found == nil:
		return sandbox.Source{}, api.Errorf(api.CodeMountSource, "%s: %s", asked, s.Error)
	}
	return sandbox.Source{
		Path:     asked,
		Resolved: s.Resolved,
		Dev:      s.Dev,
		Ino:      s.Ino,
		Kind:     s.Kind,
		OwnerUID: s.OwnerUID,
		Mode:     s.Mode,
	}, nil
}

func caller(p api.Principal) sandbox.Caller {
	return sandbox.Caller{UID: p.UID, GID: p.GID, Groups: p.Groups}
}

func unsupported(missing []sandbox.Layer) *api.Error {
	names := make([]string, len(missing))
	for i, l := range missing {
		names[i] = l.Name
	}
	return api.Errorf(api.CodeUnsupportedByHost, "this host lacks: %s (see doctor)", strings.Join(names, ", "))
}

// execPlan is one execution as it will be carried out.
type execPlan struct {
	exec    sandbox.Exec  // without Session and ID
	timeout time.Duration // 0 means that the session's own end comes first
	output  int64         // bytes that are kept of each stream
	form    outputForm
	record  api.GrantRecord // of a shell; without bytes it is not recorded
	clamped []api.Clamp
}

// planExec fits one execution into its session: the grant of the open is the outer
// bound, whatever the policy of the exec says (R088). left is the rest of the session's
// life, 0 when it has no end. It is pure. What the grant refuses is a denial; an error is
// what this host cannot enforce.
func planExec(x *api.Exec, g *api.Grant, env map[string]string, d rego.Decision, def Defaults, left time.Duration, host sandbox.Host) (execPlan, []api.Deny, error) {
	p := execPlan{form: outputForm{
		preview: def.PreviewBytes,
		require: x.OutputMode == outputInline,
		blob:    d.Obligations.Output == "blob",
	}}
	if deny := execDenials(x, g, p.form); len(deny) > 0 {
		return p, deny, nil
	}
	bounds := *g
	if x.Terminal != nil {
		bounds.Exec.DefaultTimeoutNS = 0 // that is for commands; a shell lives as long as it may
	}
	limits, clamped := rego.MeetExec(x, bounds, d.Limits)
	p.clamped = clamped
	own := tighter(limits, g.Ceilings)
	if (own.MemoryBytes != 0 || own.CPUMillis != 0 || own.PIDs != 0) && !can(host, sandbox.LayerExecLimits) {
		return p, nil, unsupported([]sandbox.Layer{{Name: sandbox.LayerExecLimits}})
	}
	p.exec = sandbox.Exec{
		Argv:       x.Argv,
		Env:        environment(env, x.EnvPatch, g.Env.Set),
		Cwd:        resolve(g.Workdir, x.Cwd),
		Background: g.Exec.Background,
		StdinOpen:  x.StdinOpen,
		Limits:     own,
	}
	if x.Terminal != nil {
		p.exec.Terminal = &sandbox.Terminal{Cols: x.Terminal.Cols, Rows: x.Terminal.Rows}
		if name := x.Terminal.Term; name != "" {
			p.exec.Env = withEnv(p.exec.Env, []string{"TERM=" + name})
		} else if !slices.ContainsFunc(p.exec.Env, func(e string) bool { return strings.HasPrefix(e, "TERM=") }) {
			p.exec.Env = append(p.exec.Env, "TERM="+defaultTerm)
		}
	}
	p.output = cmp.Or(limits.OutputBytes, def.OutputBytes)
	if r := g.Exec.Record; r != nil && x.Terminal != nil {
		p.record = api.GrantRecord{Bytes: cmp.Or(r.Bytes, g.Ceilings.OutputBytes, def.OutputBytes), Input: r.Input}
	}
	p.form.inline = min(cmp.Or(limits.MaxInlineBytes, mostInline), mostInline)
	if x.MaxInline == 0 {
		p.form.inline = min(p.form.inline, def.InlineBytes)
	}
	p.note("max_inline_bytes", x.MaxInline, p.form.inline)
	p.timeout = cmp.Or(time.Duration(limits.TimeoutNS), def.Timeout)
	if x.Terminal != nil && limits.TimeoutNS == 0 {
		p.timeout = math.MaxInt64
	}
	if left > 0 && left <= p.timeout {
		p.timeout = 0
		p.note("timeout_ns", x.TimeoutNS, int64(left))
	}
	return p, nil, nil
}

// outputInline is the output mode that never gives a blob; the other one is auto.
const (
	outputAuto   = "auto"
	outputInline = "require_inline"
)

// mostInline keeps a receipt well below the largest record of the journal.
const mostInline = 1 << 20

// execDenials lists what the session's grant refuses of an execution.
func execDenials(x *api.Exec, g *api.Grant, f outputForm) []api.Deny {
	var deny []api.Deny
	refuse := func(broken bool, code api.Code, subject string) {
		if broken {
			deny = append(deny, api.Deny{Code: code, Subject: subject})
		}
	}
	refuse(x.Terminal != nil && g.Exec.Shells != nil && !*g.Exec.Shells, api.CodeShellNotAllowed, "shell")
	refuse(over(int64(len(x.Argv)), g.Exec.MaxArgv), api.CodeArgvLimit, "argv")
	for i, arg := range x.Argv {
		refuse(over(int64(len(arg)), g.Exec.MaxArgBytes), api.CodeArgLength, fmt.Sprintf("argv/%d", i))
	}
	refuse(over(int64(len(x.EnvPatch)), g.Env.Max), api.CodeEnvPatchLimit, "env_patch")
	for _, name := range slices.Sorted(maps.Keys(x.EnvPatch)) {
		refuse(!x.EnvPatch[name].Unset && !rego.EnvAllowed(g.Env.Allow, name), api.CodeEnvVarNotAllowed, "env:"+name)
	}
	cwd := resolve(g.Workdir, x.Cwd)
	refuse(!below(g.Exec.CwdPrefixes, cwd), api.CodeCwdNotAllowed, "cwd:"+cwd)
	mode := cmp.Or(x.OutputMode, outputAuto)
	refuse(g.Exec.OutputModes != nil && !slices.Contains(g.Exec.OutputModes, mode), api.CodeOutputModeNotAllowed, "output_mode:"+mode)
	refuse(f.blob && f.require, api.CodeInlineForbidden, "output_mode:"+mode)
	for _, out := range x.Outputs {
		refuse(!below(g.Exec.OutputPrefixes, resolve(g.Workdir, out)), api.CodeOutputNotAllowed, "output:"+out)
	}
	return deny
}

// tighter are the ceilings of one execution that are below its session's (R053). The others are the session's
// anyway, and a group of its own would be for nothing.
func tighter(l rego.ExecLimits, session api.Ceilings) sandbox.ExecLimits {
	below := func(limit, session int64) int64 {
		if session != 0 && limit >= session {
			return 0
		}
		return limit
	}
	return sandbox.ExecLimits{
		MemoryBytes: below(l.MemoryBytes, session.MemoryBytes),
		CPUMillis:   below(l.CPUMillis, session.CPUMillis),
		PIDs:        below(l.PIDs, session.PIDs),
		Files:       below(l.Files, session.Files),
		CPUTime:     time.Duration(below(l.CPUTimeNS, session.CPUTimeNS)),
	}
}

// note records that the runtime's own bound took something from the caller (C17, C18).
func (p *execPlan) note(field string, asked, effective int64) {
	if asked <= effective {
		return
	}
	p.clamped = slices.DeleteFunc(p.clamped, func(c api.Clamp) bool { return c.Field == field && c.Effective > effective })
	if !slices.ContainsFunc(p.clamped, func(c api.Clamp) bool { return c.Field == field }) {
		p.clamped = append(p.clamped, api.Clamp{Field: field, Requested: asked, Effective: effective, Source: "runtime"})
	}
}

// environment lays the patch over the session's, and what policy sets over both.
func environment(session map[string]string, patch map[string]api.EnvValue, set map[string]string) []string {
	all := map[string]string{"PATH": defaultPath}
	for name, value := range session {
		all[name] = value
	}
	for name, value := range patch {
		if value.Unset {
			delete(all, name)
		} else {
			all[name] = value.Text
		}
	}
	for name, value := range set {
		all[name] = value
	}
	env := make([]string, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		env = append(env, name+"="+all[name])
	}
	return env
}

// defaultTerm is the terminal that whoever is attached most likely has.
const defaultTerm = "xterm-256color"

// defaultPath serves when neither policy nor the caller sets PATH.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// resolve makes an inside path absolute, relative to workdir. It is lexical: the kernel
// resolves it again inside, where every path that exists is the session's own.
func resolve(workdir, p string) string {
	if path.IsAbs(p) {
		return path.Clean(p)
	}
	return path.Join("/", workdir, p)
}

// below reports whether p lies at or below one of the prefixes, by whole components:
// /srv/repo does not admit /srv/repo-secret. An absent list admits every path.
func below(prefixes []string, p string) bool {
	return prefixes == nil || slices.ContainsFunc(prefixes, func(dir string) bool { return rego.Below(p, dir) })
}

func over(n, max int64) bool { return max > 0 && n > max }
