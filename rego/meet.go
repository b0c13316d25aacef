package rego

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// Meet gives the grant that is in force: what was asked for, what policy grants and
// what the operator permits, whichever is least. Numbers go to the minimum, rw to overlay and ro,
// lists to their intersection; nothing widens, and the order of mounts, lists or
// ceilings does not matter. A number that the caller asked for and does not get is in
// the list of clamps (C17). What cannot be met by less, such as another kind of root,
// is in the list of denials; the grant is then of no use.
//
// Host paths are not looked at here: [Engine.Decide] compares their facts with the ceiling.
func Meet(ask *api.SessionOpen, grant api.Grant, ceiling sandbox.Ceiling) (api.Grant, []api.Clamp, []api.Deny) {
	g := clone(grant)
	m := meeting{grant: &g, ceiling: ceiling}
	if r := g.Exec.Record; r != nil {
		r.Bytes = cmp.Or(r.Bytes, g.Ceilings.OutputBytes)
	}
	for _, b := range bounds(&g, ceiling) {
		*b.granted = least(*b.granted, b.ceiling)
	}
	m.limits(ask)
	m.mounts(ask)
	m.network(ask)
	m.choices(ask)
	m.complete()
	slices.SortFunc(m.deny, func(a, b api.Deny) int {
		return cmp.Or(strings.Compare(string(a.Code), string(b.Code)), strings.Compare(a.Subject, b.Subject))
	})
	return g, m.clamps, m.deny
}

type meeting struct {
	grant   *api.Grant
	ceiling sandbox.Ceiling
	clamps  []api.Clamp
	deny    []api.Deny
}

// limits lowers the grant to what was asked for, and says where that was more.
func (m *meeting) limits(ask *api.SessionOpen) {
	g, c := m.grant, m.ceiling
	if ask.Limits.CPUWeight != 0 && g.Ceilings.CPUWeight == 0 {
		g.Ceilings.CPUWeight = usualWeight
	}
	for _, l := range []struct {
		field   string
		asked   int64
		granted *int64
		ceiling int64
	}{
		{"limits.memory_bytes", ask.Limits.MemoryBytes, &g.Ceilings.MemoryBytes, c.MemoryBytes},
		{"limits.cpu_millis", ask.Limits.CPUMillis, &g.Ceilings.CPUMillis, c.CPUMillis},
		{"limits.pids", ask.Limits.PIDs, &g.Ceilings.PIDs, c.PIDs},
		{"limits.output_bytes", ask.Limits.OutputBytes, &g.Ceilings.OutputBytes, c.OutputBytes},
		{"limits.files", ask.Limits.Files, &g.Ceilings.Files, c.Files},
		{"limits.cpu_time_ns", ask.Limits.CPUTimeNS, &g.Ceilings.CPUTimeNS, c.CPUTimeNS},
		{"limits.cpu_weight", ask.Limits.CPUWeight, &g.Ceilings.CPUWeight, 0},
		{"limits.io_bytes_per_second", ask.Limits.IOBytesPerSecond, &g.Ceilings.IOBytesPerSecond, 0},
		{"limits.disk_bytes", ask.Limits.DiskBytes, &g.Ceilings.DiskBytes, 0},
		{"limits.disk_inodes", ask.Limits.DiskInodes, &g.Ceilings.DiskInodes, 0},
		{"session_ttl_ns", ask.SessionTTLNS, &g.TTLNS, c.TTLNS},
		{"idle_timeout_ns", ask.IdleNS, &g.IdleNS, c.IdleNS},
	} {
		switch {
		case l.asked < 0:
			m.refuse(api.CodeInvalidParams, l.field, "a limit cannot be negative")
		case *l.granted != 0 && l.asked > *l.granted:
			m.clamps = append(m.clamps, api.Clamp{Field: l.field, Requested: l.asked, Effective: *l.granted, Source: source(*l.granted, l.ceiling)})
		case l.asked != 0:
			*l.granted = l.asked
		}
	}
	g.Exec.DefaultTimeoutNS = least(g.Exec.DefaultTimeoutNS, g.Exec.MaxTimeoutNS)
	if ask.OnRestart == restartTerminate {
		g.OnRestart = restartTerminate
	}
	g.Exec.Background = g.Exec.Background && (ask.Background == nil || *ask.Background)
}

// usualWeight is the kernel's own (cpu.weight). More than that takes from other sessions, so a grant
// that is silent gives no more, unlike other ceilings.
const usualWeight = 100

// choices refuses what is one thing or another and was asked for otherwise.
func (m *meeting) choices(ask *api.SessionOpen) {
	g := m.grant
	m.deny = append(m.deny, beyond(g, m.ceiling)...)
	local := ask.Target.Local
	if local == nil {
		m.refuse(api.CodeTargetNotAllowed, "target", "no target that is served here")
		return
	}
	for _, c := range []struct {
		code           api.Code
		name           string
		asked, granted string
	}{
		{api.CodeRootNotAllowed, "root", rootKind(local.Root), g.Root},
		{api.CodeNetworkNotAllowed, "network", local.NetworkMode, g.Network.Mode},
		{api.CodeWorkdirNotAllowed, "workdir", local.Workdir, g.Workdir},
		{api.CodeHostnameNotAllowed, "hostname", local.Hostname, g.Hostname},
	} {
		if c.asked != "" && c.granted != "" && c.asked != c.granted {
			m.refuse(c.code, c.name+":"+c.asked, "granted is "+c.granted)
		}
	}
	if g.Root != string(sandbox.RootHost) && rootKind(local.Root) == "" {
		m.refuse(api.CodeRootNotAllowed, "root:"+g.Root, "the request names no such root")
	}
	if g.Workdir == "" {
		g.Workdir = local.Workdir
	}
	if g.Hostname == "" {
		g.Hostname = local.Hostname
	}
	for name := range local.Env {
		if !EnvAllowed(g.Env.Allow, name) {
			m.refuse(api.CodeEnvVarNotAllowed, "env:"+name, "not among the names that are granted")
		}
	}
	if n := int64(len(local.Env)); g.Env.Max != 0 && n > g.Env.Max {
		m.refuse(api.CodeEnvLimit, "env", "too many variables")
	}
}

// mounts keeps the granted mounts that were asked for. A mount that was asked for
// and not granted is a denial: a session without it is not what the caller wants.
func (m *meeting) mounts(open *api.SessionOpen) {
	asked := askedMounts(&api.Request{Open: open})
	var kept []api.GrantMount
	for _, gm := range m.grant.Mounts {
		key := [2]string{gm.HostPath, gm.GuestPath}
		ask, ok := asked[key]
		if !ok {
			continue
		}
		delete(asked, key)
		if wider(gm.Mode, ask.Mode) {
			gm.Mode, gm.Bytes, gm.Inodes, gm.Protect = "ro", 0, 0, nil // an overlay in its place would need room
		}
		m.room(&gm, ask)
		kept = append(kept, gm)
	}
	for key := range asked {
		m.refuse(api.CodeMountHostPath, "mount:"+key[1], key[0]+" is not granted")
	}
	slices.SortFunc(kept, func(a, b api.GrantMount) int { return strings.Compare(a.GuestPath, b.GuestPath) })
	m.grant.Mounts = kept
}

// room lowers the room of an overlay to what was asked for, and says where that was more.
func (m *meeting) room(gm *api.GrantMount, ask askedMount) {
	if gm.Mode != api.ModeOverlay {
		return
	}
	for _, r := range []struct {
		name    string
		asked   int64
		granted *int64
	}{{"bytes", ask.Bytes, &gm.Bytes}, {"inodes", ask.Inodes, &gm.Inodes}} {
		if r.asked > *r.granted {
			m.clamps = append(m.clamps, api.Clamp{Field: fmt.Sprintf("mounts/%d/%s", ask.index, r.name), Requested: r.asked, Effective: *r.granted, Source: "policy"})
		}
		*r.granted = least(*r.granted, r.asked)
	}
}

// network leaves of what is granted what was asked for, and of the layers to be done without those that
// both sides name. A destination that was asked for, and of which nothing is granted, is a denial.
func (m *meeting) network(ask *api.SessionOpen) {
	g := m.grant
	if local := ask.Target.Local; local != nil {
		wanted := askedNetwork(local)
		if wanted.Mode == "none" {
			g.Network = api.GrantNetwork{Mode: "none", Forward: g.Network.Forward}
		}
		covers := func(wide, d api.Destination) bool { return sandbox.Destination(wide).Covers(sandbox.Destination(d)) }
		if len(wanted.Allow) > 0 {
			g.Network.Allow = slices.DeleteFunc(g.Network.Allow, func(d api.Destination) bool {
				return !slices.ContainsFunc(wanted.Allow, func(w api.Destination) bool { return covers(w, d) })
			})
		}
		for _, w := range wanted.Allow {
			if !slices.ContainsFunc(g.Network.Allow, func(d api.Destination) bool { return covers(w, d) }) {
				m.refuse(api.CodeDestination, "egress:"+w.Name+w.CIDR, "nothing of it is granted")
			}
		}
	}
	g.Degraded = slices.DeleteFunc(g.Degraded, func(layer string) bool { return !slices.Contains(ask.Degraded, layer) })
	if ask.Verify == verifyCanary {
		g.Verify = verifyCanary
	}
}

// complete refuses a grant that leaves open what every session must have bounded.
func (m *meeting) complete() {
	m.deny = append(m.deny, unbounded(m.grant)...)
	c := m.grant.Ceilings
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"ceilings.memory_bytes", c.MemoryBytes},
		{"ceilings.cpu_millis", c.CPUMillis},
		{"ceilings.pids", c.PIDs},
		{"ceilings.files", c.Files},
		{"ceilings.output_bytes", c.OutputBytes},
		{"ceilings.executions", c.Executions},
	} {
		if n.value == 0 {
			m.refuse(api.CodeGrantIncomplete, n.name, "neither policy nor the ceiling bounds it")
		}
	}
}

func (m *meeting) refuse(code api.Code, subject, message string) {
	m.deny = append(m.deny, api.Deny{Code: code, Subject: subject, Message: message})
}

// MeetExec gives the limits of one execution: the least of what was asked for, what
// the session's grant holds and what policy tightens, with the clamps that were needed.
// A TimeoutNS or MaxInlineBytes of 0 means that nobody bounds it.
func MeetExec(ask *api.Exec, grant api.Grant, tighter ExecLimits) (ExecLimits, []api.Clamp) {
	limits := ExecLimits{
		TimeoutNS:      least(grant.Exec.MaxTimeoutNS, tighter.TimeoutNS),
		OutputBytes:    least(grant.Ceilings.OutputBytes, tighter.OutputBytes),
		MaxInlineBytes: least(grant.Exec.MaxInlineBytes, tighter.MaxInlineBytes),
		MemoryBytes:    least(grant.Ceilings.MemoryBytes, tighter.MemoryBytes),
		CPUMillis:      least(grant.Ceilings.CPUMillis, tighter.CPUMillis),
		PIDs:           least(grant.Ceilings.PIDs, tighter.PIDs),
		Files:          least(grant.Ceilings.Files, tighter.Files),
		CPUTimeNS:      least(grant.Ceilings.CPUTimeNS, tighter.CPUTimeNS),
	}
	var clamps []api.Clamp
	for _, l := range []struct {
		field   string
		asked   int64
		granted *int64
	}{
		{"timeout_ns", ask.TimeoutNS, &limits.TimeoutNS},
		{"limits.output_bytes", ask.Limits.OutputBytes, &limits.OutputBytes},
		{"max_inline_bytes", ask.MaxInline, &limits.MaxInlineBytes},
		{"limits.memory_bytes", ask.Limits.MemoryBytes, &limits.MemoryBytes},
		{"limits.cpu_millis", ask.Limits.CPUMillis, &limits.CPUMillis},
		{"limits.pids", ask.Limits.PIDs, &limits.PIDs},
		{"limits.files", ask.Limits.Files, &limits.Files},
		{"limits.cpu_time_ns", ask.Limits.CPUTimeNS, &limits.CPUTimeNS},
	} {
		if *l.granted != 0 && l.asked > *l.granted {
			clamps = append(clamps, api.Clamp{Field: l.field, Requested: l.asked, Effective: *l.granted, Source: "policy"})
		}
		*l.granted = least(*l.granted, max(l.asked, 0))
	}
	if ask.TimeoutNS == 0 {
		limits.TimeoutNS = least(limits.TimeoutNS, grant.Exec.DefaultTimeoutNS)
	}
	return limits, clamps
}

// MeetModify gives the time that an execution may take from its start, when its caller
// changes its mind: bounded as [MeetExec] bounds what was asked for at first, by the same
// tighter limits. Otherwise a command that policy gave a minute would be given the session's hour.
func MeetModify(timeoutNS int64, grant api.Grant, tighter ExecLimits) (effective int64, clamps []api.Clamp) {
	limits, clamps := MeetExec(&api.Exec{TimeoutNS: timeoutNS}, grant, tighter)
	return limits.TimeoutNS, clamps
}

// least is the minimum of two bounds, of which 0 is none.
func least(a, b int64) int64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// source says whose bound an effective value is.
func source(effective, ceiling int64) string {
	if effective == ceiling {
		return "ceiling"
	}
	return "policy"
}

func rootKind(r api.Root) string {
	switch {
	case r.Host != nil:
		return string(sandbox.RootHost)
	case r.Dir != nil:
		return string(sandbox.RootDir)
	case r.Paths != nil:
		return string(sandbox.RootPaths)
	}
	return ""
}

func clone(g api.Grant) api.Grant {
	g.Mounts = slices.Clone(g.Mounts)
	g.Scratch = slices.Clone(g.Scratch)
	g.Network.Allow = slices.Clone(g.Network.Allow)
	if g.Network.Forward != nil {
		g.Network.Forward = &api.GrantForward{Ports: slices.Clone(g.Network.Forward.Ports)}
	}
	g.Degraded = slices.Clone(g.Degraded)
	g.Identity.Groups = slices.Clone(g.Identity.Groups)
	g.Identity.Capabilities = slices.Clone(g.Identity.Capabilities)
	g.Env.Allow = slices.Clone(g.Env.Allow)
	g.Env.Set = maps.Clone(g.Env.Set)
	g.Exec.OutputModes = slices.Clone(g.Exec.OutputModes)
	g.Exec.Signals = slices.Clone(g.Exec.Signals)
	g.Exec.CwdPrefixes = slices.Clone(g.Exec.CwdPrefixes)
	g.Exec.OutputPrefixes = slices.Clone(g.Exec.OutputPrefixes)
	if g.Exec.Record != nil {
		record := *g.Exec.Record
		g.Exec.Record = &record
	}
	if g.FS != nil {
		files := *g.FS
		files.Ops, files.Roots, files.PatchFormats = slices.Clone(files.Ops), slices.Clone(files.Roots), slices.Clone(files.PatchFormats)
		files.WriteRoots = slices.Clone(files.WriteRoots)
		g.FS = &files
	}
	return g
}
