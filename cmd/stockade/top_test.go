package main

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// twoPolls are of two sessions, one of which computes and one of which prints, two seconds apart.
func twoPolls(argv ...string) (before, now *poll) {
	grant := &api.Grant{Ceilings: api.Ceilings{MemoryBytes: 64 << 20, PIDs: 32, CPUMillis: 2000}}
	at := func(n int64) *poll {
		then := begun + n*2e9
		return &poll{
			at: time.Unix(0, then),
			sessions: []api.Session{
				{SessionID: sessionOne, State: "ready", Profile: "workspace", Labels: map[string]string{"job": "42"}, Grant: grant, StartedAtNS: begun - 60e9, Live: 1,
					Principal: api.Principal{UID: 4_000_000_000},
					Load:      &api.Load{SampledAtNS: then, MemoryBytes: 60 << 20, PIDs: 3, CPUNS: 5e9 + n*3e9}},
				{SessionID: sessionTwo, State: "ready", Grant: grant, StartedAtNS: begun - 30e9, Live: 1, Principal: api.Principal{UID: 4_000_000_000},
					Load: &api.Load{SampledAtNS: then, MemoryBytes: 1 << 20, PIDs: 1, OutputBytes: n * 8192, Denied: 2, Refused: 3}},
			},
			processes: []api.Process{
				{ExecID: execRuns, SessionID: sessionTwo, State: api.StateRunning, Argv: argv, QueuedAtNS: begun - 20e9, StdoutBytes: n * 8000, StderrBytes: n * 192, Principal: api.Principal{UID: 4_000_000_000}},
				{ExecID: execRust, SessionID: sessionOne, State: api.StateRunning, Paused: n == 1, Argv: []string{"spin"}, QueuedAtNS: begun - 10e9, Principal: api.Principal{UID: 4_000_000_000}},
				{ExecID: execGone, SessionID: "s-unknown", State: api.StateRunning, Argv: []string{"late"}},
			},
		}
	}
	return at(0), at(1)
}

// screenOf is what a frame says, without how it looks.
func screenOf(v *view, width, height int) string {
	var b strings.Builder
	for _, l := range v.frame(width, height, time.Unix(0, begun+2e9)) {
		b.WriteString(strings.TrimRight(printable(l.text), " ") + "\n")
	}
	return b.String()
}

// Issue 8: live sessions and executions, each with what it uses against its ceilings, sorted by what somebody wants.
func TestTopTable(t *testing.T) {
	before, now := twoPolls("yes")
	v := &view{by: byCPU, every: 2 * time.Second}
	v.show(before.survey(nil))
	if got := screenOf(v, 120, 8); strings.Count(got, "  -  ") < 4 {
		t.Errorf("rates after one look:\n%s", got)
	}
	v.show(now.survey(before))
	want := `2 sessions, 2 executions, every 2s, by cpu
  ID              STATE            USER        AGE   CPU%     MEM          PIDS  OUT/s  REFUSED  COMMAND
> s-oneaaaaaaa    ready            4000000000  1m2s  150/200  60MiB/64MiB  3/32  0B     0        workspace job=42
    x-rustbbbbbb  running, paused  4000000000  12s   -        -            -     0B     -        spin
  s-twoaaaaaaa    ready            4000000000  32s   0/200    1MiB/64MiB   1/32  4KiB   5
    x-runsbbbbbb  running          4000000000  22s   -        -            -     4KiB   -        yes

j/k select  Enter show  x cancel  X close  c/m/o sort  q quit
`
	if diff := cmp.Diff(want, screenOf(v, 120, 8)); diff != "" {
		t.Error(diff)
	}
	v.press("o")
	if got := screenOf(v, 120, 8); strings.Index(got, "s-two") > strings.Index(got, "s-one") || !strings.Contains(got, "> s-one") {
		t.Errorf("by output, with the same one selected:\n%s", got)
	}
	v.press("m")
	if got := screenOf(v, 120, 8); strings.Index(got, "s-two") < strings.Index(got, "s-one") {
		t.Errorf("by memory:\n%s", got)
	}
	if looks := v.frame(120, 8, now.at); looks[2].look != chosen || looks[4].look != ordinary {
		t.Errorf("%+v", looks)
	}
	v.press("j")
	if looks := v.frame(120, 8, now.at); looks[2].look != warned {
		t.Errorf("60 of 64 MiB: %+v", looks[2])
	}

	// Counts that began anew, and a session that stood still.
	again, still := *now, *now
	again.at, still.at = now.at.Add(time.Second), now.at.Add(time.Second)
	again.sessions, still.sessions = slices.Clone(now.sessions), slices.Clone(now.sessions)
	again.sessions[1].Load = &api.Load{SampledAtNS: again.at.UnixNano(), OutputBytes: 1}
	still.sessions[0].Live = 0
	if s := again.survey(now); s.Sessions[1].Output != nil || s.Sessions[0].CPUPercent != nil {
		t.Errorf("%+v", s.Sessions[1])
	}
	if s := still.survey(now); s.Sessions[0].CPUPercent == nil || *s.Sessions[0].CPUPercent != 0 {
		t.Errorf("%+v", s.Sessions[0])
	}
}

// The keys: selecting, inspecting, and what is done only once somebody has said y.
func TestTopKeys(t *testing.T) {
	if got, want := parseTyped("j\x1b[A\x1bOB\x1b[5~\x1b[1;5A\rX\x03\x07é\x1b"), []string{"j", "k", "j", "enter", "X", "quit", "back"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	before, now := twoPolls("yes")
	v := &view{by: byCPU}
	if do := v.press("enter"); do != (deed{}) {
		t.Errorf("with nothing there: %+v", do)
	}
	v.press("x")
	v.press("X")
	v.show(now.survey(before))
	press := func(want deed, foot string, keys ...string) {
		t.Helper()
		var do deed
		for _, key := range keys {
			do = v.press(key)
		}
		lines := v.frame(100, 8, now.at)
		if got := lines[len(lines)-1].text; do != want || !strings.Contains(got, foot) {
			t.Errorf("%q: %+v, %q", keys, do, got)
		}
	}
	press(deed{}, "that is a session", "x")
	press(deed{}, "cancel x-rustbbbbbb (spin)? y/n", "j", "x")
	press(deed{}, "nothing was done", "n")
	press(deed{}, "nothing was done", "x", "q")
	press(deed{cancel: execRust}, "…", "x", "y")
	press(deed{}, "close session s-oneaaaaaaa with 1 execution(s)?", "X")
	press(deed{close: sessionOne}, "…", "y")
	press(deed{show: execRust}, "", "enter")
	v.inspect(execRust, []string{"1\n", "2\n", "3\n", "4\n", "5\n", "6\n", "7\n", "8\n"})
	press(deed{}, "scroll", "x", "j", "j", "j", "j")
	if got := screenOf(v, 100, 8); !strings.HasPrefix(got, execRust+"\n3\n4\n") {
		t.Error(got)
	}
	press(deed{}, "select", "q")
	press(deed{}, "", "j", "j", "j", "j", "k")
	if v.selected != sessionTwo {
		t.Error(v.selected)
	}
	press(deed{quit: true}, "", "q")
	press(deed{quit: true}, "", "X", "quit")
	// What was selected goes: then it is what is in its place.
	now.processes, now.sessions = nil, now.sessions[:1]
	v.show(now.survey(before))
	if v.selected != sessionOne {
		t.Error(v.selected)
	}
	// More than fits: what is selected is on the screen.
	for _, id := range []string{"s-a", "s-b", "s-c", "s-d"} {
		now.sessions = append(now.sessions, api.Session{SessionID: id, State: "ready"})
	}
	v.show(now.survey(before))
	for range 4 {
		v.press("j")
	}
	if got := screenOf(v, 100, 5); !strings.Contains(got, "> "+v.selected) || strings.Count(got, "\n") != 5 || strings.Contains(got, "s-one") {
		t.Errorf("%s of\n%s", v.selected, got)
	}
	if got := v.frame(10, 2, now.at); len(got) != 2 {
		t.Errorf("%+v", got)
	}
}

// A supervisor that is away is said, and its return.
func TestTopLost(t *testing.T) {
	before, now := twoPolls("yes")
	v := &view{by: byCPU}
	v.show(now.survey(before))
	v.lost(errors.New("dial \x1b[2J"), time.Unix(0, begun))
	v.lost(errors.New("dial \x1b[2J"), time.Unix(0, begun+1e9))
	if got := screenOf(v, 100, 8); !strings.HasPrefix(got, "no news for 2s, asking again: dial \uFFFD[2J\n") || !strings.Contains(got, "s-one") {
		t.Error(got)
	}
	v.show(now.survey(before))
	if got := screenOf(v, 100, 8); !strings.HasPrefix(got, "2 sessions") {
		t.Error(got)
	}
}

// What a session chose is text to the terminal, wherever it stands; colours are ours, and not everybody's.
func TestTopHostile(t *testing.T) {
	before, now := twoPolls("yes", hostile, "\u009b31m\u202e")
	now.sessions[0].Labels = map[string]string{hostile: hostile}
	v := &view{by: byCPU}
	v.show(now.survey(before))
	ours := strings.NewReplacer("\x1b[1m", "", "\x1b[7m", "", "\x1b[2m", "", "\x1b[0m", "", "\x1b[2K", "", "\x1b[33m", "", "\x1b[31m", "")
	check := func(what string) {
		t.Helper()
		for i, part := range strings.Split(ours.Replace(paint(v.frame(200, 8, now.at), true)), "\x1b[")[1:] {
			if place, text, ok := strings.Cut(part, "H"); !ok || strings.Trim(place, "0123456789;") != "" || strings.ContainsAny(text, "\x1b\x07\r\n\u009b\u202e") {
				t.Errorf("%s, line %d: %q", what, i, part)
			}
		}
	}
	check("the table")
	v.press("j")
	v.press("j")
	v.press("j")
	v.press("x")
	if v.ask == nil {
		t.Fatal("no question")
	}
	check("a question")
	v.press("n")
	v.said = hostile
	check("an answer")
	v.inspect(hostile, []string{hostile})
	check("a page")
	if got := paint([]line{{"x", alarmed}, {"y", warned}}, false); strings.Contains(got, "\x1b[3") {
		t.Errorf("%q", got)
	}
}

// What top writes where nobody looks.
func TestTopOnce(t *testing.T) {
	f := registry(t)
	got := f.run(t, "", "top", "--once", "--interval", "500ms")
	want := `ID              STATE     USER  AGE   CPU%  MEM  PIDS  OUT/s  REFUSED  COMMAND
s-oneaaaaaaa    quiesced  root  3m0s  -     -    -     -      -        
  x-runsbbbbbb  running   root  3m0s  -     -    -     -      -        make -j2 test
`
	if diff := cmp.Diff(want, got.stdout); got.status != 0 || diff != "" {
		t.Errorf("%d %s\n%s", got.status, got.stderr, diff)
	}
	if n := len(f.said("GET /v1/sessions")); n != 2 {
		t.Errorf("%d looks", n)
	}
	got = f.run(t, "", "top", "--once", "--json", "-i", "500ms")
	if !strings.HasPrefix(got.stdout, "{\n  \"at_ns\": ") || !strings.Contains(got.stdout, `"id": "`+execRuns+`"`) {
		t.Errorf("%+v", got)
	}
	for _, args := range [][]string{{"top"}, {"top", "x"}, {"top", "--once", "--interval", "1ms"}} {
		if got := f.run(t, "", args...); got.status != exitUsage {
			t.Errorf("%q: %+v", args, got)
		}
	}
	none := newFake(t)
	none.mux.HandleFunc("GET /v1/sessions", func(w http.ResponseWriter, _ *http.Request) { fails(w, 500, api.CodeInternalError) })
	for _, args := range [][]string{{"top", "--once"}, {"top", "--json"}} {
		if got := none.run(t, "", args...); got.status != exitUnavailable {
			t.Errorf("%q: %+v", args, got)
		}
	}
}
