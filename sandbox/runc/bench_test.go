package runc

import (
	"context"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/sandbox"
)

func TestTimes(t *testing.T) {
	r := newRunner(t)
	ctx := context.Background()
	var opens, execs, closes []time.Duration
	steps := map[string][]time.Duration{}
	for i := range 30 {
		id := fmt.Sprintf("t%d", i)
		begin := time.Now()
		last := begin
		r.fail = func(s string) error {
			now := time.Now()
			steps[s] = append(steps[s], now.Sub(last))
			last = now
			return nil
		}
		if _, err := r.Open(ctx, hostSpec(id)); err != nil {
			t.Fatal(err)
		}
		opens = append(opens, time.Since(begin))
		for j := range 10 {
			begin = time.Now()
			done := make(chan sandbox.Result, 1)
			o, e, err := r.Start(ctx, sandbox.Exec{Session: id, ID: fmt.Sprintf("x%d", j), Argv: []string{"/bin/true"}, Env: []string{}, Cwd: "/"}, nil, func(x sandbox.Result) { done <- x })
			if err != nil {
				t.Fatal(err)
			}
			io.ReadAll(o)
			<-done
			execs = append(execs, time.Since(begin))
			o.Close()
			e.Close()
		}
		begin = time.Now()
		if _, err := r.Close(ctx, id); err != nil {
			t.Fatal(err)
		}
		closes = append(closes, time.Since(begin))
		time.Sleep(30 * time.Millisecond)
	}
	show := func(name string, d []time.Duration) {
		slices.Sort(d)
		t.Logf("%-12s min %v p50 %v max %v", name, d[0], d[len(d)/2], d[len(d)-1])
	}
	show("open", opens)
	for _, s := range []string{"ids", "cgroups", "namespaces", "sources", "staged", "started", "joined", "released", "setup", "evidence"} {
		show("  "+s, steps[s])
	}
	show("exec", execs)
	show("close", closes)
}
