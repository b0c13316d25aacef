package main

import (
	"os"
	"runtime"
	"runtime/debug"
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

// What the heap may hold. The live part is small, the compiled policy above all, and every
// decision leaves 30 kB of garbage: collecting at the default of 100 % costs more than the
// memory is worth.
const (
	garbage  = 400 // per cent of what is live
	heapSize = 1 << 30
)

// collectLess sets both, where the environment does not say otherwise.
func collectLess() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(heapSize)
	}
}
