package worker

import (
	"testing"
	"time"

	"github.com/stockade-dev/stockade/policies"
	"github.com/stockade-dev/stockade/rego"
)

// BenchmarkDecide: the same decisions in an engine of this process and through a worker; the difference is the hop.
func BenchmarkDecide(b *testing.B) {
	engine, err := rego.Load(policies.FS, rego.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer engine.Close()
	pool, err := Load(policies.FS, Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	time.Sleep(time.Second) // for the spare
	for _, question := range []struct {
		name, ref string
		in        rego.Input
	}{
		{"exec", rego.Exec, executing(b, engine)},
		{"open20", rego.Open, input(20)},
	} {
		for _, p := range []struct {
			name string
			decider
		}{{"engine", engine}, {"worker", pool}} {
			b.Run(question.name+"/"+p.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if d := p.Decide(b.Context(), question.ref, question.in); !d.Allow {
						b.Fatal(d.Deny)
					}
				}
			})
		}
	}
}
