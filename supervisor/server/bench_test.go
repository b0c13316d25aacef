package server

import (
	"context"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// What the socket itself costs: a round trip without an operation.
func BenchmarkVersion(b *testing.B) {
	box := newBox(b, Options{})
	for b.Loop() {
		if _, err := box.Version(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// A command that costs nothing, with policy, journal and receipt.
func BenchmarkExec(b *testing.B) {
	box := newBox(b, Options{})
	exec := api.Exec{SessionID: box.open(b), Argv: []string{"nothing"}}
	for b.Loop() {
		if r, err := box.Exec(b.Context(), exec); err != nil || r.Outcome != api.OutcomeOK {
			b.Fatal(r, err)
		}
	}
}

// Decoding what a caller sends for an exec, strictly.
func BenchmarkDecode(b *testing.B) {
	body := []byte(`{"session_id":"s-h424kgm5wwv45p3tbkbjm26ldf","argv":["make","-C","/workspace","test"],"env_patch":{"A":"1","B":{"secret":"x"}},"timeout_ns":1000000000}`)
	for b.Loop() {
		if _, err := api.Decode[api.Exec](body); err != nil {
			b.Fatal(err)
		}
	}
}

// From a write of the command to the event at a reader: through the pipe, the spool, the stream
// and the client.
func BenchmarkOutputEvent(b *testing.B) {
	box := newBox(b, Options{})
	box.fake.pace = make(chan struct{})
	x := box.begin(b, api.Exec{SessionID: box.open(b), Argv: []string{"chatter", strconv.Itoa(math.MaxInt32)}})
	came := make(chan struct{})
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	go box.Watch(ctx, x.ExecID, "", func(e api.Event) error {
		if e.Kind == "output" {
			came <- struct{}{}
		}
		return nil
	})
	var took []time.Duration
	for b.Loop() {
		begun := time.Now()
		box.fake.pace <- struct{}{}
		<-came
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
}
