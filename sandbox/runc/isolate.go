package runc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/exeseal"
	_ "github.com/opencontainers/runc/libcontainer/nsenter" // its C constructor joins namespaces before the Go runtime starts
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

func init() {
	// A process that libcontainer starts is this binary again, with the argument
	// "init", on its way to becoming stockade-init.
	if len(os.Args) > 1 && os.Args[1] == "init" {
		libcontainer.Init() // does not return
	}
	// A thread that was given another identity or namespace ends with its goroutine,
	// unless it is the main thread, which the runtime parks instead. Keep it for main.
	runtime.LockOSThread()
	// libcontainer's warnings are about what it was not asked to do.
	logrus.SetLevel(logrus.ErrorLevel)
}

// pathVariable tells the second life of the process, and those that replace it, where its
// binary is.
const pathVariable = "STOCKADE_RUN_PATH"

// Successor returns the program that is now at the place where this one was, as a sealed
// copy: what is tried is what will be executed. It is to be executed as it is; Isolate finds that
// it has nothing to do.
func Successor() (*os.File, error) {
	path := os.Getenv(pathVariable)
	if path == "" {
		return nil, errors.New("the runner does not know its own binary")
	}
	return sealed(path)
}

// Isolate executes the process again, once: in a mount namespace of its own, from
// which nothing that the runner mounts can reach the host, and from a sealed copy of its binary, which a
// session could not overwrite if it ever got hold of it. It returns only in the
// second life. It is called from the main goroutine, before anything else.
func Isolate() error {
	if exeseal.IsSelfExeCloned() {
		// Libcontainer hands this to the process that it starts, and to nobody else. One
		// processor is what that process settles for anyway; so it starts with fewer threads,
		// and does not look for its quota first.
		if err := os.Setenv("GOMAXPROCS", "1"); err != nil {
			return err
		}
		// The kernel named us after the descriptor that we were executed from.
		return os.WriteFile("/proc/self/comm", []byte(filepath.Base(os.Args[0])), 0)
	}
	path, err := os.Executable()
	if err != nil {
		return fmt.Errorf("own binary: %w", err)
	}
	if err := os.Setenv(pathVariable, path); err != nil {
		return err
	}
	exe, err := sealed("/proc/self/exe")
	if err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare mount namespace: %w", err)
	}
	// Slave: what the host mounts later can still become a source.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("make mounts slave: %w", err)
	}
	return fmt.Errorf("execute again: %w", unix.Exec(procFD(exe), os.Args, os.Environ()))
}
