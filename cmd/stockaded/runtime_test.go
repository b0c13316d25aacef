package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func TestGarbagePercent(t *testing.T) {
	for live, want := range map[uint64]int{
		0:         mostGarbage,
		1 << 20:   mostGarbage,
		16 << 20:  mostGarbage,
		32 << 20:  200,
		64 << 20:  80, // 100, in steps of 40
		128 << 20: leastGarbage,
		1 << 40:   leastGarbage,
	} {
		if got := garbagePercent(live); got != want {
			t.Errorf("beside %d bytes: %d %%, not %d", live, got, want)
		}
	}
}

// What may be left lying about follows what lives, up and down.
func TestGarbageFollows(t *testing.T) {
	t.Setenv("GOGC", "")
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	collectLess()
	expect := func(want int) {
		t.Helper()
		percent := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		for limit := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			runtime.GC()
			metrics.Read(percent)
			if percent[0].Value.Uint64() == uint64(want) {
				return
			}
			if time.Now().After(limit) {
				t.Fatalf("%d %%, not %d", percent[0].Value.Uint64(), want)
			}
		}
	}
	expect(mostGarbage)
	lives := make([]byte, 256<<20)
	expect(leastGarbage)
	runtime.KeepAlive(lives)
	expect(mostGarbage)
}
