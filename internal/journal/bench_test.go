package journal

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"testing"
	"time"
)

// BenchmarkAppend is the price of a durable record of 1 KiB, alone and in company.
func BenchmarkAppend(b *testing.B) {
	for _, callers := range []int{1, 16, 64} {
		b.Run(map[int]string{1: "alone", 16: "16", 64: "64"}[callers], func(b *testing.B) {
			j := open(b, fresh(b), Options{})
			rec := bytes.Repeat([]byte("x"), 1<<10)
			took := make([][]time.Duration, callers)
			b.SetBytes(int64(len(rec)))
			b.ResetTimer()
			var callersDone sync.WaitGroup
			for c := range callers {
				callersDone.Go(func() {
					for range b.N/callers + 1 {
						start := time.Now()
						if _, err := j.Append(context.Background(), rec); err != nil {
							b.Error(err)
							return
						}
						took[c] = append(took[c], time.Since(start))
					}
				})
			}
			callersDone.Wait()
			all := slices.Concat(took...)
			slices.Sort(all)
			b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
		})
	}
}

// BenchmarkOpen is a restart with 100,000 records of 1 KiB: every byte is checked.
func BenchmarkOpen(b *testing.B) {
	dir := fresh(b)
	j := open(b, dir, Options{})
	batch := make([][]byte, 1000)
	for i := range batch {
		batch[i] = bytes.Repeat([]byte("x"), 1<<10)
	}
	for range 100 {
		if _, err := j.Append(context.Background(), batch...); err != nil {
			b.Fatal(err)
		}
	}
	j.Close()
	b.SetBytes(100_000 << 10)
	for b.Loop() {
		open(b, dir, Options{}).Close()
	}
}

func BenchmarkGet(b *testing.B) {
	j := open(b, fresh(b), Options{})
	fill(b, j, 0, 100)
	for b.Loop() {
		if _, err := j.Get(50); err != nil {
			b.Fatal(err)
		}
	}
}
