package server

import (
	"testing"

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
