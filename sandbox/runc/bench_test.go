package runc

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/sandbox"
)

// BenchmarkSession reports the median of a cold open, step by step, of an execution of
// /bin/true through the handler beside a bare one, and of a close.
func BenchmarkSession(b *testing.B) {
	r := newRunner(b)
	stocked(b, r, 2)
	ctx := context.Background()
	times := map[string][]time.Duration{}
	note := func(what string, since time.Time) {
		times[what] = append(times[what], time.Since(since))
	}
	defer func() { r.meddle = nil }()
	for i := 0; b.Loop(); i++ {
		id := fmt.Sprintf("bench%d", i)
		full(b, r, 2)
		time.Sleep(30 * time.Millisecond) // what the refill has warmed up is cold again
		begin := time.Now()
		last := begin
		r.meddle = func(step string, _ *opening) error {
			note("open."+step, last)
			last = time.Now()
			return nil
		}
		open(b, r, hostSpec(id))
		note("open", begin)
		for j := range 5 {
			begin := time.Now()
			done := make(chan sandbox.Result, 1)
			e := sandbox.Exec{Session: id, ID: fmt.Sprintf("x%d", j), Argv: []string{"/bin/true"}, Cwd: "/"}
			streams, err := r.Start(ctx, e, nil, func(x sandbox.Result) { done <- x })
			if err != nil {
				b.Fatal(err)
			}
			note("exec.started", begin)
			_, _ = io.Copy(io.Discard, streams.Stdout)
			<-done
			note("exec", begin)
			if j == 0 {
				note("exec.first", begin)
			}
			streams.Close()
			r.Forget(id, e.ID)
		}
		begin = time.Now()
		if err := exec.Command("/bin/true").Run(); err != nil {
			b.Fatal(err)
		}
		note("bare", begin)
		begin = time.Now()
		closeSession(b, r, id)
		note("close", begin)
	}
	for what, all := range times {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds()), "µs-"+what)
	}
}
