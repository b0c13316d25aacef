// Stockade-init is PID 1 of a session: see package guest. With the argument "hold"
// it holds a session's user and cgroup namespaces open while the session is built; with
// "execute" it is on its way to becoming a command; with "files" it serves the session's file tools, and with "search" it has an operator's ripgrep
// search for them.
//
// The Go runtime must not open the cgroup files by which it sizes GOMAXPROCS: init
// closes every descriptor but its own, and their numbers would be used again.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"os"
	"runtime"

	"github.com/stockade-dev/stockade/internal/filetool/ripgrep"
	"github.com/stockade-dev/stockade/sandbox/guest"
)

// The main goroutine stays on the main thread: its credentials are what /proc/1/status
// shows, and what executions inherit.
func init() { runtime.LockOSThread() }

func main() {
	life := guest.Run
	if len(os.Args) == 2 {
		switch os.Args[1] {
		case "hold":
			life = guest.Hold
		case "execute":
			life = guest.Execute
		case "files":
			life = serveFiles
		case "search":
			life = ripgrep.Serve
		}
	}
	os.Exit(life())
}
