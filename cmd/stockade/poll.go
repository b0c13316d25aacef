package main

import (
	"cmp"
	"context"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// poll is what the supervisor said at one moment of what lives.
type poll struct {
	at        time.Time
	sessions  []api.Session
	processes []api.Process
}

func (c *cli) poll(ctx context.Context) (*poll, error) {
	sessions, err := c.client().Sessions(ctx, api.Read{Limit: most})
	if err != nil {
		return nil, err
	}
	p := &poll{at: c.now()}
	p.sessions = slices.DeleteFunc(sessions, func(s api.Session) bool { return s.EndedAtNS != 0 })
	p.processes, err = c.processes(ctx, api.Read{Active: true}, most)
	return p, err
}

// survey is a poll held against the one before it: what --json writes.
type survey struct {
	AtNS     int64     `json:"at_ns"`
	SinceNS  int64     `json:"since_ns"` // how long before it the other was; 0: there was none
	Sessions []*stance `json:"sessions"`
}

// stance is how a session or an execution stands. What is not known is absent.
type stance struct {
	ID         string    `json:"id"`
	State      string    `json:"state"`
	UID        uint32    `json:"uid"`
	AgeNS      int64     `json:"age_ns"`
	CPUPercent *float64  `json:"cpu_percent,omitzero"` // 100 is one processor
	CPUMost    int64     `json:"cpu_percent_ceiling,omitzero"`
	Memory     *int64    `json:"memory_bytes,omitzero"`
	MemoryMost int64     `json:"memory_bytes_ceiling,omitzero"`
	PIDs       *int64    `json:"pids,omitzero"`
	PIDsMost   int64     `json:"pids_ceiling,omitzero"`
	Output     *float64  `json:"output_bytes_per_second,omitzero"`
	Refused    *int64    `json:"refused,omitzero"` // operations on it, and what its layers refused to its processes
	Command    string    `json:"command"`          // of a session: its profile and labels
	Executions []*stance `json:"executions,omitempty"`

	session string // of an execution
	user    string
	begun   int64
}

// survey holds p against what was said before, which may be nil.
func (p *poll) survey(before *poll) *survey {
	v := &survey{AtNS: p.at.UnixNano(), Sessions: []*stance{}}
	if before == nil {
		before = &poll{at: p.at}
	} else {
		v.SinceNS = int64(p.at.Sub(before.at))
	}
	were, ran := map[string]*api.Load{}, map[string]*api.Process{}
	for _, s := range before.sessions {
		were[s.SessionID] = s.Load
	}
	for i := range before.processes {
		ran[before.processes[i].ExecID] = &before.processes[i]
	}
	of := map[string]*stance{}
	for i := range p.sessions {
		s := sessionStance(&p.sessions[i], p.at, were[p.sessions[i].SessionID], v.SinceNS)
		of[s.ID], v.Sessions = s, append(v.Sessions, s)
	}
	for i := range p.processes {
		x := &p.processes[i]
		if s := of[x.SessionID]; s != nil { // of one that was opened between the two answers, the next poll tells
			s.Executions = append(s.Executions, executionStance(x, p.at, ran[x.ExecID], v.SinceNS))
		}
	}
	names := map[uint32]string{}
	for _, s := range v.Sessions {
		slices.SortFunc(s.Executions, byAge)
		for _, st := range append([]*stance{s}, s.Executions...) {
			if names[st.UID] == "" {
				names[st.UID] = userName(st.UID)
			}
			st.user = names[st.UID]
		}
	}
	return v
}

func sessionStance(s *api.Session, at time.Time, was *api.Load, since int64) *stance {
	st := &stance{
		ID: s.SessionID, State: s.State, UID: s.Principal.UID, AgeNS: at.UnixNano() - s.StartedAtNS, begun: s.StartedAtNS,
		Command: strings.TrimSpace(s.Profile + " " + pairs(s.Labels)),
	}
	if g := s.Grant; g != nil {
		st.CPUMost, st.MemoryMost, st.PIDsMost = g.Ceilings.CPUMillis/10, g.Ceilings.MemoryBytes, g.Ceilings.PIDs
	}
	l := s.Load
	if l == nil {
		return st
	}
	st.Refused = new(l.Denied + l.Refused)
	if l.SampledAtNS != 0 {
		st.Memory, st.PIDs = &l.MemoryBytes, &l.PIDs
	}
	if was == nil || was.SampledAtNS == 0 {
		return st
	}
	st.Output = rate(l.OutputBytes-was.OutputBytes, since)
	if l.SampledAtNS == was.SampledAtNS && s.Live == 0 {
		st.CPUPercent = new(0.0) // nothing is in it that would be read anew
	} else if used := rate(l.CPUNS-was.CPUNS, l.SampledAtNS-was.SampledAtNS); used != nil {
		st.CPUPercent = new(*used / 1e9 * 100)
	}
	return st
}

func executionStance(x *api.Process, at time.Time, was *api.Process, since int64) *stance {
	st := &stance{
		ID: x.ExecID, State: string(x.State), UID: x.Principal.UID, AgeNS: at.UnixNano() - x.QueuedAtNS, begun: x.QueuedAtNS,
		Command: commandLine(x.Argv), session: x.SessionID,
	}
	if x.Paused {
		st.State += ", paused"
	}
	if was != nil {
		st.Output = rate(x.StdoutBytes+x.StderrBytes-was.StdoutBytes-was.StderrBytes, since)
	}
	return st
}

// rate is so much a second; nil where a count began anew, or no time has passed.
func rate(more, ns int64) *float64 {
	if more < 0 || ns <= 0 {
		return nil
	}
	return new(float64(more) / float64(ns) * 1e9)
}

// order is what sessions are sorted by, the most first.
type order byte

const (
	byCPU    order = 'c'
	byMemory order = 'm'
	byOutput order = 'o'
)

var orders = map[order]struct {
	name string
	of   func(*stance) float64
}{
	byCPU:    {"cpu", func(s *stance) float64 { return known(s.CPUPercent) }},
	byMemory: {"memory", func(s *stance) float64 { return float64(known(s.Memory)) }},
	byOutput: {"output", func(s *stance) float64 { return known(s.Output) }},
}

func known[T int64 | float64](n *T) T {
	if n == nil {
		return 0
	}
	return *n
}

func byAge(a, b *stance) int { return cmp.Or(cmp.Compare(a.begun, b.begun), cmp.Compare(a.ID, b.ID)) }

// rows are the sessions in order, each with its executions below it.
func (v *survey) rows(by order) (rows []*stance) {
	sessions := slices.SortedStableFunc(slices.Values(v.Sessions), func(a, b *stance) int {
		return cmp.Or(cmp.Compare(orders[by].of(b), orders[by].of(a)), byAge(a, b))
	})
	for _, s := range sessions {
		rows = append(append(rows, s), s.Executions...)
	}
	return rows
}

var columns = []string{"ID", "STATE", "USER", "AGE", "CPU%", "MEM", "PIDS", "OUT/s", "REFUSED", "COMMAND"}

// cells are what the columns show. They are for [table] or [screen], which make plain text of them.
func (s *stance) cells() []string {
	id := short(s.ID)
	if s.session != "" {
		id = "  " + id
	}
	return []string{
		id, s.State, s.user, age(s.AgeNS),
		against(s.CPUPercent, s.CPUMost, func(f float64) string { return strconv.FormatFloat(f, 'f', 0, 64) }),
		against(s.Memory, s.MemoryMost, amount),
		against(s.PIDs, s.PIDsMost, func(n int64) string { return strconv.FormatInt(n, 10) }),
		against(s.Output, 0, func(f float64) string { return amount(int64(f)) }),
		against(s.Refused, 0, func(n int64) string { return strconv.FormatInt(n, 10) }),
		s.Command,
	}
}

// against is used/ceiling.
func against[T int64 | float64](used *T, ceiling int64, text func(T) string) string {
	switch {
	case used == nil:
		return "-"
	case ceiling == 0:
		return text(*used)
	}
	return text(*used) + "/" + text(T(ceiling))
}

// near is how much of a ceiling is used, of that of which it is most.
func (s *stance) near() float64 {
	most := 0.0
	for _, of := range [][2]float64{
		{float64(known(s.Memory)), float64(s.MemoryMost)}, {float64(known(s.PIDs)), float64(s.PIDsMost)},
	} {
		if of[1] > 0 {
			most = max(most, of[0]/of[1])
		}
	}
	return most
}

// age is a length of time in a few characters.
func age(ns int64) string {
	d := time.Duration(max(0, ns)).Truncate(time.Second)
	switch {
	case d >= 48*time.Hour:
		return strconv.Itoa(int(d/(24*time.Hour))) + "d"
	case d >= time.Hour:
		return strings.TrimSuffix(d.Truncate(time.Minute).String(), "0s")
	}
	return d.String()
}

// userName is the name of a user on this machine, or its number.
func userName(uid uint32) string {
	number := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(number); err == nil {
		return u.Username
	}
	return number
}
