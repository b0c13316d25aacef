package worker

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/callfilter"
)

// confine gives up, in a process that has done nothing yet, everything that an evaluation does not need. It is for
// good: where something can be tried to be taken back, it is, and must fail. The calling thread must never end.
func confine(o order) error {
	data, err := writable() // first: soon there is no /proc
	if err != nil {
		return err
	}
	if err := closeInherited(); err != nil {
		return err
	}
	const name = "/proc/self/comm"
	if err := os.WriteFile(name, []byte("stockade-policy"), 0); err != nil {
		return err
	}
	if o.Apart {
		// Before the identity: mounts take CAP_SYS_ADMIN.
		if err := leaveRoot(); err != nil {
			return err
		}
		if err := become(int(o.UID)); err != nil {
			return err
		}
	}
	if err := lower(o, data); err != nil {
		return err
	}
	// No core, no ptrace, and nothing of ours in /proc for anybody but root.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("undumpable: %w", err)
	}
	// After the identity, whose change takes it back. It follows the thread that started us, which lives as long as the
	// pool; and it is there for a worker that has been taken over. Others see the end of their socket.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("death signal: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil { // the filter takes it to every thread
		return fmt.Errorf("no_new_privs: %w", err)
	}
	// Last: it leaves none of the calls above.
	if err := callfilter.Install(rows(os.Getpid()), callfilter.Kill); err != nil {
		return err
	}
	if _, err := unix.Open("/", unix.O_PATH, 0); err != unix.ENOENT {
		return fmt.Errorf("the filter does not hold: open: %v", err)
	}
	return nil
}

// closeInherited closes what came without being meant to: whoever started the daemon may have left it descriptors. What stays
// is the socket, /dev/null twice, and the poller of our own runtime.
func closeInherited() error {
	const dir = "/proc/self/fd"
	open, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range open {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			return err
		}
		target, err := os.Readlink(dir + "/" + e.Name())
		if err != nil || fd <= 2 || strings.HasPrefix(target, anonymous) { // an error: the directory's own, which is closed
			continue
		}
		if err := unix.Close(fd); err != nil {
			return fmt.Errorf("close descriptor %d: %w", fd, err)
		}
	}
	return nil
}

// anonymous begins the names of descriptors that lead to nothing but the kernel's own.
const anonymous = "anon_inode:"

// leaveRoot makes an empty, read-only directory the root of the process. Its mount namespace is its own.
func leaveRoot() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	const place = "/proc" // any directory that is there
	if err := unix.Mount("none", place, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0555,nr_inodes=1,size=4096"); err != nil {
		return fmt.Errorf("mount an empty root: %w", err)
	}
	if err := unix.Chdir(place); err != nil {
		return fmt.Errorf("enter the empty root: %w", err)
	}
	// Onto itself: the old root is then on top of the new one, and is taken off.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the old root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("enter the empty root: %w", err)
	}
	if names, err := os.ReadDir("/"); err != nil || len(names) > 0 {
		return fmt.Errorf("the root is not empty: %v %v", names, err)
	}
	return nil
}

// become takes an identity that nothing else has. With uid 0 all capabilities go.
func become(id int) error {
	if err := syscall.Setgroups(nil); err != nil {
		return fmt.Errorf("setgroups: %w", err)
	}
	if err := syscall.Setresgid(id, id, id); err != nil {
		return fmt.Errorf("setresgid: %w", err)
	}
	if err := syscall.Setresuid(id, id, id); err != nil {
		return fmt.Errorf("setresuid: %w", err)
	}
	if syscall.Setresuid(0, 0, 0) == nil || syscall.Setresgid(0, 0, 0) == nil {
		return errors.New("the identity can be taken back")
	}
	return nil
}

// lower sets the resource limits, hard ones. Memory counts beyond the data that there is already.
func lower(o order, data int64) error {
	limits := []struct {
		resource int
		limit    int64
	}{
		{unix.RLIMIT_DATA, data + o.Memory}, // what else there is of memory, the filter refuses
		{unix.RLIMIT_CORE, 0},
		{unix.RLIMIT_FSIZE, 0},
		{unix.RLIMIT_MEMLOCK, 0},
		{unix.RLIMIT_NOFILE, 16},
	}
	if o.Apart { // otherwise everything that the user runs would count
		limits = append(limits, struct {
			resource int
			limit    int64
		}{unix.RLIMIT_NPROC, 64})
	}
	for _, l := range limits {
		var now unix.Rlimit
		if err := unix.Getrlimit(l.resource, &now); err != nil {
			return fmt.Errorf("resource limit %d: %w", l.resource, err)
		}
		limit := min(uint64(l.limit), now.Max)
		if err := unix.Setrlimit(l.resource, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			return fmt.Errorf("resource limit %d: %w", l.resource, err)
		}
	}
	return nil
}

// writable is how many bytes of address space are private and can be written.
func writable() (int64, error) {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(statm)
	if len(fields) < 6 {
		return 0, fmt.Errorf("statm: %q", statm)
	}
	pages, err := strconv.ParseInt(string(fields[5]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("statm: %w", err)
	}
	return pages * int64(os.Getpagesize()), nil
}
