package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"golang.org/x/sys/unix"
)

// slack is how late the kernel may end a timed sleep of ours. The Go runtime's monitor
// sleeps 20 µs at a time while there is work, in the daemon, in the runner and in every
// init. At the kernel's default of 50 µs, its waking took a fifth of the daemon's processor
// time, and a tenth of the time of a short execution on two processors. No timer of ours
// minds 250 µs.
const slack = 250 * time.Microsecond

// loosen gives slack to every thread of this process and of its descendants; init gives
// executions the default back. A thread has its slack from the one that made it, and the
// monitor's exists before main: so the program starts once more, in place. A failure costs
// speed and nothing else.
func loosen() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if tight(slack) {
		self, err := os.Executable()
		if err != nil || unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0) != nil || tight(slack) {
			return
		}
		_ = unix.Exec(self, os.Args, os.Environ())
	}
}

// tight reports whether this thread's sleeps may not be as late as d. That of a real-time thread
// never is.
func tight(d time.Duration) bool {
	ns, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	return err == nil && time.Duration(ns) < d
}

// What the heap may hold. While the live part is small, the compiled policy above all, collecting at the default of 100 % costs
// more than the memory is worth: every decision leaves 30 kB of garbage. A state that has grown is not to have as many times
// itself of garbage beside it.
const (
	mostGarbage  = 400      // per cent of what is live
	leastGarbage = 50       // likewise
	garbage      = 64 << 20 // bytes, between these two
	heapSize     = 1 << 30  // beyond which the collector works harder
)

// collectLess sets both, where the environment does not say otherwise.
func collectLess() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(mostGarbage)
		runtime.AddCleanup(new(*byte), collected, mostGarbage)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(heapSize)
	}
}

// collected follows every collection, for which it leaves something to collect, and says when the next one is due.
func collected(percent int) {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	if now := garbagePercent(live[0].Value.Uint64()); now != percent {
		debug.SetGCPercent(now)
		percent = now
	}
	runtime.AddCleanup(new(*byte), collected, percent)
}

// garbagePercent is how much garbage there may be beside that many live bytes, in steps of a tenth of the most.
func garbagePercent(live uint64) int {
	const step = mostGarbage / 10
	percent := garbage * 100 / int64(max(live, 1))
	return int(min(max(percent/step*step, leastGarbage), mostGarbage))
}
