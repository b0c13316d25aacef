package journal

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkAppend is the price of a durable record of 1 KiB, alone and in company.
func BenchmarkAppend(b *testing.B) {
	for _, callers := range []int{1, 4, 16, 64} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
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

// BenchmarkOpen is a restart with 300,000 records of 800 bytes: every byte is checked, and
// every record told to who replays them. Beside it, what a second pass would cost.
func BenchmarkOpen(b *testing.B) {
	const records, size, batch = 300_000, 800, 1000
	dir := fresh(b)
	j := open(b, dir, Options{})
	recs := make([][]byte, batch)
	for i := range recs {
		recs[i] = bytes.Repeat([]byte("x"), size)
	}
	for range records / batch {
		if _, err := j.Append(context.Background(), recs...); err != nil {
			b.Fatal(err)
		}
	}
	j.Close()
	for _, twice := range []bool{false, true} {
		b.Run(map[bool]string{false: "each", true: "read"}[twice], func(b *testing.B) {
			b.SetBytes(records * size)
			before := cpu(b)
			for b.Loop() {
				told := 0
				tell := func(int64, []byte) error { told++; return nil }
				opt := Options{Each: tell}
				if twice {
					opt.Each = nil
				}
				j := open(b, dir, opt)
				if twice {
					if err := j.Read(0, tell); err != nil {
						b.Fatal(err)
					}
				}
				if told != records {
					b.Fatalf("%d records", told)
				}
				j.Close()
			}
			b.ReportMetric(float64((cpu(b)-before).Milliseconds())/float64(b.N), "cpu-ms/op")
		})
	}
}

// cpu is what this process has used.
func cpu(b *testing.B) time.Duration {
	var use unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
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
