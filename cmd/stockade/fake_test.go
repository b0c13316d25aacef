package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// Tables have times of day.
func TestMain(m *testing.M) {
	time.Local = time.UTC
	os.Exit(m.Run())
}

// Ids as a supervisor makes them.
var (
	sessionOne = sessionPrefix + "one" + strings.Repeat("a", 23)
	sessionTwo = sessionPrefix + "two" + strings.Repeat("a", 23)
	execRuns   = execPrefix + "runs" + strings.Repeat("b", 22)
	execRust   = execPrefix + "rust" + strings.Repeat("b", 22)
	execDone   = execPrefix + "done" + strings.Repeat("b", 22)
	execGone   = execPrefix + "gone" + strings.Repeat("b", 22)
	intentRuns = intentPrefix + strings.Repeat("1", 64)
	intentDone = intentPrefix + strings.Repeat("2", 64)
	intentOpen = intentPrefix + strings.Repeat("3", 64)
)

// theTime is when everything is looked at, and begun when it began.
const (
	begun   = int64(1_700_000_000_000_000_000) // 2023-11-14 22:13:20
	theTime = begun + 3*60*1e9
)

// fake is a supervisor that answers what a test wants it to.
type fake struct {
	socket string
	mux    *http.ServeMux

	mu    sync.Mutex
	calls []string // METHOD PATH?QUERY BODY
}

func newFake(t *testing.T) *fake {
	t.Helper()
	dir, err := os.MkdirTemp("", "stockade-") // short: the name of a socket has bounds
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{socket: filepath.Join(dir, "s"), mux: http.NewServeMux()}
	ln, err := net.Listen("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: f}
	done := make(chan struct{})
	go func() { srv.Serve(ln); close(done) }()
	t.Cleanup(func() { srv.Close(); <-done; os.RemoveAll(dir) })
	return f
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	f.mu.Lock()
	f.calls = append(f.calls, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(body)))
	f.mu.Unlock()
	f.mux.ServeHTTP(w, r)
}

// said returns the calls that contain all of the words.
func (f *fake) said(words ...string) (found []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, call := range f.calls {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(call, w) }) {
			found = append(found, call)
		}
	}
	return found
}

// answers has a route answered with a document.
func (f *fake) answers(route string, v any) {
	f.mux.HandleFunc(route, func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, v) })
}

// does has an operation settled with a receipt.
func (f *fake) does(op api.Op, r api.Receipt) {
	r.Op, r.IntentID = op, intentOpen
	if r.Outcome == "" {
		r.Outcome = api.OutcomeOK
	}
	f.answers("POST /v1/ops/"+string(op), r)
}

func reply(w http.ResponseWriter, status int, v any) {
	b, err := api.Encode(v)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(b)
}

// fails answers with an error.
func fails(w http.ResponseWriter, status int, code api.Code) {
	reply(w, status, map[string]any{"error": map[string]any{"code": code, "message": "as scripted"}})
}

// stream is a stream of lines, which may be cut.
func stream(w http.ResponseWriter, events ...any) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	for _, e := range events {
		if e == cut {
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
		b, err := api.Encode(e)
		if err != nil {
			panic(err)
		}
		w.Write(append(b, '\n'))
		w.(http.Flusher).Flush()
	}
}

var cut = new(struct{ int })

// outputs are output events, each of which is "STREAM TEXT", with offsets and cursors.
func outputs(from [2]int64, texts ...string) (events []any) {
	for i, text := range texts {
		name, text, _ := strings.Cut(text, " ")
		n := 0
		if name == "stderr" {
			n = 1
		}
		e := api.Event{Kind: "output", IntentID: intentRuns, ExecID: execRuns, Stream: name, Offset: from[n], Bytes: []byte(text), AtNS: begun + int64(i)*1e6}
		from[n] += int64(len(text))
		e.Cursor = fmt.Sprintf("0.%d.%d", from[0], from[1])
		events = append(events, e)
	}
	return events
}

// receipt is that of a command with an exit code.
func receipt(code int) api.Receipt {
	return api.Receipt{
		Version: 1, IntentID: intentRuns, ExecID: execRuns, Op: api.OpExec, Outcome: api.OutcomeOK,
		Payload: api.Payload{Exec: &api.ExecResult{Status: "ok", ExitCode: code}},
	}
}

func theEnd(code int) api.Event {
	r := receipt(code)
	return api.Event{Kind: "receipt", IntentID: r.IntentID, ExecID: r.ExecID, Receipt: &r}
}

// transcript is what was written to stdout and stderr, and in which order.
type transcript struct {
	mu       sync.Mutex
	out, err strings.Builder
	order    []string
}

type side struct {
	t    *transcript
	name string
	to   *strings.Builder
}

func (s side) Write(b []byte) (int, error) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.t.order = append(s.t.order, s.name+" "+string(b))
	return s.to.Write(b)
}

// ran is one command line that has been run.
type ran struct {
	status         int
	stdout, stderr string
	order          []string
}

// run runs a command line against the fake.
func (f *fake) run(t *testing.T, stdin string, args ...string) ran {
	t.Helper()
	tr := &transcript{}
	c := &cli{
		stdin: strings.NewReader(stdin), stdout: side{tr, "stdout", &tr.out}, stderr: side{tr, "stderr", &tr.err},
		clock: func() time.Time { return time.Unix(0, theTime) },
	}
	status := c.run(t.Context(), append([]string{"--socket", f.socket}, args...))
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return ran{status, tr.out.String(), tr.err.String(), tr.order}
}
