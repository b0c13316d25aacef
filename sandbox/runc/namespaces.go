package runc

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/cleanup"
	"github.com/stockade-dev/stockade/internal/thread"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/cgroup"
	"github.com/stockade-dev/stockade/sandbox/guest"
)

// namespaces are those that exist before init does.
type namespaces struct {
	user, cgroup *os.File
	below        int64 // user namespaces that can be made in user, as its holder has read it
}

func (n *namespaces) close() {
	n.user.Close()
	n.cgroup.Close()
}

// makeNamespaces makes the session's user and cgroup namespaces, by means of a process that
// holds them until they are open, and is gone when it returns. The receiver closes them.
//
// The user namespace is owned by the session's own first id: the kernel counts inotify instances and watches, pending signals, message queues
// and processes of a namespace as its owner's, too, and root's would be used up by one session for all others and for the host.
func (r *Runner) makeNamespaces(ctx context.Context, base uint32, groups *cgroup.Session) (_ *namespaces, err error) {
	ours, theirs, err := guest.Pair()
	if err != nil {
		return nil, err
	}
	holder, err := guest.NewHolder(ours)
	if err != nil {
		ours.Close()
		theirs.Close()
		return nil, err
	}
	cmd := &exec.Cmd{
		Path:       procFD(r.init),
		Args:       []string{"stockade-init", "hold"},
		Env:        []string{},
		ExtraFiles: []*os.File{theirs},
		SysProcAttr: &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWUSER,
			// Its own id means nothing in there until it is mapped, so that execve would take away what it needs:
			// CAP_SYS_RESOURCE for the ceiling, CAP_SYS_ADMIN for the cgroup namespace.
			AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SYS_RESOURCE},
		},
	}
	err = thread.Owning(base, cmd.Start)
	theirs.Close()
	if err != nil {
		holder.Close()
		return nil, fmt.Errorf("start holder: %w", err)
	}
	// It ends with its socket; the kill is for one that does not. Waiting makes sure that
	// it has left the session's group, which on v2 can hand down controllers only then.
	defer func() {
		holder.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if err := mapIDs(cmd.Process.Pid, owners{mapping(0, base, sandbox.IDs), mapping(0, base, sandbox.IDs)}); err != nil {
		return nil, err
	}
	n := new(namespaces)
	if n.below, err = holder.User(ctx); err != nil {
		return nil, err
	}
	if err := groups.JoinRoot(cmd.Process.Pid); err != nil {
		return nil, err
	}
	if err := holder.Cgroup(ctx); err != nil {
		return nil, err
	}

	var undo cleanup.Stack
	defer undo.Run()
	for _, ns := range []struct {
		name string
		file **os.File
	}{{"user", &n.user}, {"cgroup", &n.cgroup}} {
		f, err := os.Open("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/ns/" + ns.name)
		if err != nil {
			return nil, fmt.Errorf("hold %s namespace: %w", ns.name, err)
		}
		undo.Add(func() { f.Close() })
		*ns.file = f
	}
	undo.Release()
	return n, nil
}
