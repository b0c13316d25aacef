//go:build failpoint

package failpoint

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

var (
	name, nth = chosen(os.Getenv("STOCKADE_FAILPOINT"))
	hits      atomic.Int64
)

func chosen(s string) (name string, nth int64) {
	name, count, ok := strings.Cut(s, ":")
	if !ok {
		return name, 1
	}
	nth, err := strconv.ParseInt(count, 10, 64)
	if err != nil || nth < 1 {
		panic("STOCKADE_FAILPOINT: " + s)
	}
	return name, nth
}

// Hit kills the process when the environment has chosen this point.
func Hit(point string) {
	if point == name && hits.Add(1) == nth {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal is on its way
	}
}
