package supervisor

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/stockade-dev/stockade/internal/spool"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// The ceilings that the supervisor keeps itself; the runner's are in package sandbox.
const (
	hitOutput  = "output_bytes"
	hitTimeout = "timeout"
)

// ceiling is what there is to say about reaching one.
type ceiling struct {
	code  api.Code
	noun  string // what there was too much of
	unit  func(int64) string
	asked string // member of a request that asks for more
	grant string // member of the grant that bounds that
	host  string // member of the operator's ceiling that bounds both; "" when there is none
}

// ceilings by the name that a hit has.
var ceilings = map[string]ceiling{
	sandbox.HitMemory:     {api.CodeOOMKilled, "memory", bytesOf, "limits.memory_bytes", "ceilings.memory_bytes", "memory_bytes"},
	sandbox.HitPIDs:       {api.CodePIDsExceeded, "processes", plain, "limits.pids", "ceilings.pids", "pids"},
	sandbox.HitCPUTime:    {api.CodeCPUTimeExceeded, "processor time", duration, "limits.cpu_time_ns", "ceilings.cpu_time_ns", "cpu_time_ns"},
	sandbox.HitDiskBytes:  {api.CodeDiskExceeded, "room", bytesOf, "limits.disk_bytes", "ceilings.disk_bytes", "scratch_bytes"},
	sandbox.HitDiskInodes: {api.CodeDiskExceeded, "inodes", plain, "limits.disk_inodes", "ceilings.disk_inodes", ""},
	hitOutput:             {api.CodeOutputExceeded, "output", bytesOf, "limits.output_bytes", "ceilings.output_bytes", "output_bytes"},
	hitTimeout:            {api.CodeTimeout, "time", duration, "timeout_ns", "exec.max_timeout_ns", "timeout_ns"},
}

func plain(n int64) string    { return fmt.Sprint(n) }
func bytesOf(n int64) string  { return fmt.Sprintf("%d bytes", n) }
func duration(n int64) string { return time.Duration(n).String() }

// Bounds of what a receipt holds of texts that the runner gives, which quote what is inside.
const (
	keptHits   = 32
	keptObject = 256 // bytes
)

// hits are the ceilings that were reached while a command ran (R054): the runner's, and ours. cause is why it was ended.
func (x *execution) hits(res sandbox.Result, cause api.Code, wall time.Duration) []api.LimitHit {
	grant := x.session.granted()
	var hits []api.LimitHit
	for _, h := range res.Hits[:min(len(res.Hits), keptHits)] {
		hits = append(hits, api.LimitHit{
			Ceiling: h.Ceiling, Scope: h.Scope, Object: quoted(h.Object), Limit: h.Limit, Peak: h.Peak, Count: h.Count,
		})
	}
	for _, o := range []struct {
		stream  spool.Stream
		written int64
	}{{spool.Stdout, x.log.Total(spool.Stdout)}, {spool.Stderr, x.log.Total(spool.Stderr)}} {
		if o.written > x.plan.output {
			hits = append(hits, api.LimitHit{Ceiling: hitOutput, Scope: sandbox.ScopeExecution, Object: o.stream.String(), Limit: x.plan.output, Peak: o.written})
		}
	}
	switch cause {
	case api.CodeTimeout:
		x.mu.Lock()
		limit := x.timeout
		x.mu.Unlock()
		hits = append(hits, api.LimitHit{Ceiling: hitTimeout, Scope: sandbox.ScopeExecution, Limit: int64(limit), Peak: int64(wall)})
	case api.CodeSessionExpired:
		hits = append(hits, api.LimitHit{Ceiling: hitTimeout, Scope: sandbox.ScopeSession, Limit: grant.TTLNS, Code: cause})
	}
	for i := range hits {
		h := &hits[i]
		if h.Code == "" {
			h.Code = ceilings[h.Ceiling].code
		}
		h.Hint = hint(h, grant)
	}
	return hits
}

// hint says what would raise a ceiling, and what bounds that.
func hint(h *api.LimitHit, g *api.Grant) string {
	c, known := ceilings[h.Ceiling]
	bounds := "policy's grant bounds it (" + c.grant + ")"
	if c.host != "" {
		bounds = fmt.Sprintf("policy's grant (%s) and the operator's ceiling (%s) bound it", c.grant, c.host)
	}
	switch {
	case !known:
		return ""
	case h.Code == api.CodeSessionExpired:
		return "session_ttl_ns of the open asks for more; policy's grant (ttl_ns, expires_at_ns) and the operator's ceiling (ttl_ns) bound it"
	case h.Ceiling == sandbox.HitDiskBytes || h.Ceiling == sandbox.HitDiskInodes:
		return diskHint(h, g, bounds)
	case h.Ceiling == hitTimeout:
		return fmt.Sprintf("%s of the exec asks for more; %s", c.asked, bounds)
	case h.Scope == sandbox.ScopeExecution && h.Ceiling != hitOutput:
		return fmt.Sprintf("%s of the exec asks for more, up to the session's", c.asked)
	}
	return fmt.Sprintf("%s of the open asks for more; %s", c.asked, bounds)
}

// diskHint goes by what is full: a scratch is as large as policy makes it.
func diskHint(h *api.LimitHit, g *api.Grant, bounds string) string {
	member := map[string]string{sandbox.HitDiskBytes: "bytes", sandbox.HitDiskInodes: "inodes"}[h.Ceiling]
	for i, m := range g.Mounts {
		if m.Mode == api.ModeOverlay && m.GuestPath == h.Object {
			return fmt.Sprintf("%s of the mount asks for more; policy's grant (mounts/%d/%[1]s) bounds it", member, i)
		}
	}
	for i, s := range g.Scratch {
		if s.GuestPath == h.Object {
			return fmt.Sprintf("policy's grant says it (scratch/%d/%s), and the operator's ceiling (scratch_bytes) bounds all of them", i, member)
		}
	}
	return fmt.Sprintf("%s of the open asks for more; %s", ceilings[h.Ceiling].asked, bounds)
}

// told is a hit in a sentence.
func told(h api.LimitHit) string {
	c := ceilings[h.Ceiling]
	if c.unit == nil { // a ceiling that this version does not know
		return fmt.Sprintf("the %s reached its ceiling of %.40q", h.Scope, h.Ceiling)
	}
	text := fmt.Sprintf("the %s reached its ceiling of %s, %s", h.Scope, c.noun, c.unit(h.Limit))
	if h.Object != "" {
		text += " at " + h.Object
	}
	if h.Hint != "" {
		text += "; " + h.Hint
	}
	return text
}

// find returns the first hit with a code; with "" the first.
func find(hits []api.LimitHit, code api.Code) *api.LimitHit {
	if i := slices.IndexFunc(hits, func(h api.LimitHit) bool { return code == "" || h.Code == code }); i >= 0 {
		return &hits[i]
	}
	return nil
}

// explain names the ceiling that ended a command, and where one was reached but did not end it, says so beside an end that
// is not a success: no 137 is left to be guessed at.
func explain(r *api.ExecResult, res sandbox.Result) {
	if res.Signal == 0 && res.ExitCode == 0 {
		return
	}
	switch memory := find(r.LimitsHit, api.CodeOOMKilled); {
	case r.ErrorCode != "":
	case find(r.LimitsHit, api.CodeCPUTimeExceeded) != nil:
		r.ErrorCode = api.CodeCPUTimeExceeded // it ends the whole tree
	case res.ExitCode == 128+int(syscall.SIGKILL) && memory != nil && memory.Scope == sandbox.ScopeExecution:
		r.ErrorCode = api.CodeOOMKilled // a shell says so of its child, and nobody else shares the ceiling
	}
	reached := find(r.LimitsHit, r.ErrorCode)
	switch {
	case reached != nil:
		r.ErrorMessage = told(*reached)
	case r.ErrorCode == api.CodeOOMKilled:
		r.ErrorMessage = "the kernel killed a process of it for want of memory"
	}
}

// refused is what layers refused to a command at run time, by their own evidence.
func refused(res sandbox.Result) (denials []api.Denial, dropped int64) {
	kept := min(len(res.Denials), sandbox.MaxDenials)
	for _, d := range res.Denials[:kept] {
		n := api.Denial{
			Layer: quoted(d.Layer), Rule: quoted(d.Rule), Object: quoted(d.Object), Syscall: quoted(d.Syscall), Errno: quoted(d.Errno),
			Grant: quoted(d.Grant), Count: d.Count,
		}
		n.AtNS, n.At = stamp(d.At)
		denials = append(denials, n)
	}
	return denials, res.Dropped + int64(len(res.Denials)-kept)
}

// quoted is text of the runner's as a receipt holds it: what is inside chose some of it.
func quoted(s string) string {
	if len(s) > keptObject {
		s = s[:keptObject] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// traffic is what went through the relay: nothing is said of a session without one.
func traffic(t sandbox.Traffic, n api.GrantNetwork) *api.Traffic {
	if t == (sandbox.Traffic{}) && (n.Mode == "" || n.Mode == "none") {
		return nil
	}
	return &api.Traffic{Connections: t.Connections, Refused: t.Refused, Questions: t.Questions, Sent: t.Sent, Received: t.Received}
}
