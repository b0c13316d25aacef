package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// toldDenials is how many refusals are told of a command that failed; its receipt has all.
const toldDenials = 8

// tellEvidence says of a command that failed which ceilings it reached and what was refused to it, by the layers' own word.
func (c *cli) tellEvidence(x *api.ExecResult) {
	if x.Status == "ok" && x.ExitCode == 0 {
		return
	}
	for _, h := range x.LimitsHit {
		if !slices.Contains([]api.Code{api.CodeTimeout, api.CodeSessionExpired, api.CodeOutputExceeded}, h.Code) { // those are told as such
			c.say("limit: %s", printable(limitText(h)))
		}
	}
	for _, d := range x.Denials[:min(len(x.Denials), toldDenials)] {
		c.say("refused: %s", printable(denialText(d)))
	}
	if more := int64(len(x.Denials)-min(len(x.Denials), toldDenials)) + x.Dropped; more > 0 {
		c.say("and %d more kinds of refusals", more)
	}
}

// memoryScope is whose memory ran out.
func memoryScope(x *api.ExecResult) string {
	for _, h := range x.LimitsHit {
		if h.Code == api.CodeOOMKilled {
			return h.Scope
		}
	}
	return sandbox.ScopeSession
}

// measures are how the numbers of a ceiling read.
var measures = map[string]func(int64) string{
	"memory": amount, "disk_bytes": amount, "output_bytes": amount, "cpu_time": span, "timeout": span,
}

// limitText is one line: whose ceiling, how much, how far it was reached, and what would raise it.
func limitText(h api.LimitHit) string {
	measure := measures[h.Ceiling]
	if measure == nil {
		measure = func(n int64) string { return fmt.Sprint(n) }
	}
	text := fmt.Sprintf("%s %s %s", h.Scope, h.Ceiling, measure(h.Limit))
	if h.Object != "" {
		text += " at " + h.Object
	}
	if h.Peak > 0 {
		text += ", peak " + measure(h.Peak)
	}
	if h.Count > 1 {
		text += fmt.Sprintf(", %d times", h.Count)
	}
	return text + "; " + h.Hint
}

// denialText is one line: layer, rule, object, and what would have allowed it.
func denialText(d api.Denial) string {
	words := []string{d.Layer, d.Rule}
	for _, word := range []string{d.Syscall, d.Object} {
		if word != "" && word != d.Rule {
			words = append(words, word)
		}
	}
	text := strings.Join(words, "  ")
	if d.Errno != "" { // a question to DNS is answered
		text += " (" + d.Errno + ")"
	}
	if d.Count > 1 {
		text += fmt.Sprintf(", %d times", d.Count)
	}
	switch {
	case d.Grant != "":
		return text + "; allowed by " + d.Grant
	case d.Layer == "seccomp":
		return text + "; nothing that can be granted allows it"
	case remedies[d.Rule] != "":
		return text + "; " + remedies[d.Rule]
	}
	return text
}

// remedies are for refusals of the relay that name no grant, because more than one would do, or none alone.
var remedies = map[string]string{
	"denied range":  "allowed by a prefix of its own, granted beside the name, unless the operator denies it",
	"no name":       "allowed by NAME:PORT/tcp, or by a prefix",
	"name mismatch": "allowed when the names agree",
}

// evidenceRows are the same for a receipt, with all there is.
func evidenceRows(x *api.ExecResult) (rows [][]string) {
	for _, h := range x.LimitsHit {
		rows = append(rows, []string{"limit", limitText(h)})
	}
	for _, d := range x.Denials {
		rows = append(rows, []string{"refused", denialText(d)})
	}
	if x.Dropped > 0 {
		rows = append(rows, []string{"refused", fmt.Sprintf("%d more, which are not kept", x.Dropped)})
	}
	if len(x.Silent) > 0 {
		rows = append(rows, []string{"unreported", strings.Join(x.Silent, ", ") + ": they cannot say what they refuse"})
	}
	if x.Network != nil {
		rows = append(rows, []string{"traffic", trafficText(x.Network)})
	}
	return rows
}

func trafficText(t *api.Traffic) string {
	return fmt.Sprintf("%d connections, %d refused, %d questions to DNS, sent %s, received %s", t.Connections, t.Refused, t.Questions, amount(t.Sent), amount(t.Received))
}

// enforcedRows are what the kernel said at an open.
func enforcedRows(e *api.Enforced) (rows [][]string) {
	if e == nil {
		return nil
	}
	rows = append(rows, []string{"enforced", fmt.Sprintf("seccomp %d, capabilities %s, landlock ABI %d, devices %s, cgroups %s", e.Seccomp, e.Capabilities, e.Landlock, e.Devices, e.Cgroup)})
	for _, l := range e.Degraded {
		rows = append(rows, []string{"without", l})
	}
	for _, k := range e.Canaries {
		verdict := ", held"
		switch {
		case k.Got != k.Want:
			verdict = ", DID NOT HOLD, wanted " + k.Want
		case k.LeftOut():
			verdict = ""
		}
		rows = append(rows, []string{"canary", k.Name + ": " + k.Got + verdict})
	}
	return rows
}
