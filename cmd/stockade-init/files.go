package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/filetool"
	"github.com/stockade-dev/stockade/internal/filetool/ripgrep"
	"github.com/stockade-dev/stockade/sandbox/files"
)

// socket is what the worker was given as its standard input.
const socket = 0

// serveFiles is the life of a file worker: it confines itself further than a command is confined, and answers. What it is given to
// read and to write are files, which others inside may have made to harm it.
func serveFiles() int {
	// Strays first, while no descriptor of ours is open.
	if err := unix.CloseRange(3, ^uint(0), 0); err != nil {
		return 1
	}
	if _, err := unix.FcntlInt(socket, unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
		return 1
	}
	// Executions have its user: none may read its memory, or trace it.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return 1
	}
	// A signal to everything in the session is for commands; the worker ends with its socket, or is killed.
	signal.Notify(make(chan os.Signal, 1))
	runtime.GOMAXPROCS(min(4, runtime.NumCPU())) // threads count as the session's processes
	debug.SetGCPercent(50)                       // and memory as its memory
	threads()
	root, err := os.OpenFile("/", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return 1
	}
	return files.Serve(socket, func(c files.Config, program *os.File, store *files.Store) (files.Tools, error) {
		if c.HeapBytes > 0 {
			debug.SetMemoryLimit(c.HeapBytes)
		}
		search := finder(program)
		// Nothing but the supervisor's first message has been read so far. From here on no program can be started.
		if err := restrict(); err != nil {
			return nil, err
		}
		return filetool.Open(filetool.Config{
			Root: root, Workdir: c.Workdir, Caps: c.Caps, Store: store.Put, Load: store.Get, Ripgrep: search,
			Runtime: filetool.Runtime{WholeBytes: c.WholeBytes, ReadBytes: c.ReadBytes, WriteBytes: c.WriteBytes, PatchBytes: c.PatchBytes, OutputBytes: c.TextBytes},
		})
	})
}

// own is this program, of which there is no file inside.
const own = "/proc/self/exe"

// finder has the helper started that runs the operator's ripgrep, if there is one. A helper that cannot be started is like one that has
// ended: the receipts of searches say so.
func finder(program *os.File) func(context.Context, int, string) ([]string, error) {
	if program == nil {
		return nil
	}
	defer program.Close()
	f, err := ripgrep.Start(own, "search", program)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return func(context.Context, int, string) ([]string, error) { return nil, ripgrep.ErrGone }
	}
	return f.Names
}

// spare is how many threads are made ahead of need: the runtime ends the process when it cannot make one, and a
// fork bomb may hold every pid by then.
const spare = 6

func threads() {
	var here, gone sync.WaitGroup
	here.Add(spare)
	for range spare {
		gone.Go(func() {
			runtime.LockOSThread() // each to one of its own, until all are there
			here.Done()
			here.Wait()
			runtime.UnlockOSThread() // and the thread stays, idle
		})
	}
	gone.Wait()
}
