// Command probe makes one attempt to leave a sandbox, or to reach what it must not
// reach, and prints how the kernel answered: "ok", or the name of the error. It is static,
// needs nothing of the place it runs in, and undoes what it did where it succeeded. The
// escape tests run it inside a session, where it must fail, and outside without the one
// protection that a row is about, where it must succeed.
//
//	probe ATTEMPT [ARG…]
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// attempt is one thing to try. Its result is the answer to be printed when it is not
// just "ok".
type attempt func(args []string) (string, error)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "probe ATTEMPT [ARG…]; attempts:", slices.Sorted(maps.Keys(attempts)))
		os.Exit(2)
	}
	try, known := attempts[os.Args[1]]
	if !known {
		fmt.Fprintf(os.Stderr, "probe: no attempt %q\n", os.Args[1])
		os.Exit(2)
	}
	fmt.Println(verdict(try(os.Args[2:])))
}

func verdict(answer string, err error) string {
	var errno syscall.Errno
	switch {
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	case errors.Is(err, fs.ErrNotExist):
		return "ENOENT"
	case err != nil:
		return err.Error()
	case answer != "":
		return answer
	}
	return "ok"
}

var attempts = map[string]attempt{
	// Files.
	"read":        func(a []string) (string, error) { return "", open(a[0], unix.O_RDONLY) },
	"write":       func(a []string) (string, error) { return "", open(a[0], unix.O_WRONLY) },
	"content":     content,
	"readlink":    readlink,
	"mknod":       mknod,
	"replace-all": replaceAll,
	"mkfifo":      func(a []string) (string, error) { return "", made(a[0], unix.Mkfifo(a[0], 0o600)) },

	// Set-id bits and file capabilities, left behind or used.
	"chmod-suid":     func(a []string) (string, error) { return "", chmod(a[0], unix.S_ISUID|0o755) },
	"chmod-sgid":     func(a []string) (string, error) { return "", chmod(a[0], unix.S_ISGID|0o755) },
	"fchmod-suid":    fchmodSuid,
	"fchmodat-suid":  fchmodatSuid,
	"fchmodat2-suid": fchmodat2Suid,
	"open-suid":      openSuid,
	"openat2-suid":   openat2Suid,
	"creat-suid":     creatSuid,
	"tmpfile-suid":   tmpfileSuid,
	"mkdir-sgid":     func(a []string) (string, error) { return "", made(a[0], unix.Mkdir(a[0], unix.S_ISGID|0o755)) },
	"mknod-suid": func(a []string) (string, error) {
		return "", made(a[0], unix.Mknod(a[0], unix.S_IFREG|unix.S_ISUID|0o755, 0))
	},
	"filecap": fileCapability,
	"euid":    func([]string) (string, error) { return fmt.Sprint(os.Geteuid()), nil },
	"status":  status,

	"--no-config": ripgrep,

	// Processes.
	"signal0":      func(a []string) (string, error) { return "", unix.Kill(number(a[0]), 0) },
	"kill":         func(a []string) (string, error) { return "", unix.Kill(number(a[0]), unix.SIGKILL) },
	"ptrace":       ptrace,
	"prlimit":      prlimit,
	"vm-read":      vmRead,
	"pidfd-get":    pidfdGet,
	"write-worker": writeWorker,
	"crash":        crash,
	"execute":      func(a []string) (string, error) { return "", execute(a[0]) },

	// Mounts and namespaces.
	"mount-tmpfs":  mountTmpfs,
	"mount-bind":   func(a []string) (string, error) { return "", unix.Mount("/", a[0], "", unix.MS_BIND, "") },
	"mount-proc":   func(a []string) (string, error) { return "", unix.Mount("proc", a[0], "proc", 0, "") },
	"mount-cgroup": func(a []string) (string, error) { return "", unix.Mount("c", a[0], "cgroup2", 0, "") },
	"remount-rw": func(a []string) (string, error) {
		return "", unix.Mount("", a[0], "", unix.MS_REMOUNT|unix.MS_BIND, "")
	},
	"umount":        func(a []string) (string, error) { return "", unix.Unmount(a[0], unix.MNT_DETACH) },
	"pivot-root":    pivotRoot,
	"chroot":        func(a []string) (string, error) { return "", unix.Chroot(a[0]) },
	"fsopen":        fsopen,
	"open-tree":     openTree,
	"mount-setattr": mountSetattr,
	"unshare":       unshare,
	"clone":         clone,
	"clone3":        clone3,
	"setns":         setns,
	"sethostname":   func(a []string) (string, error) { return "", unix.Sethostname([]byte(a[0])) },

	// Groups.
	"clone-into-cgroup": cloneIntoCgroup,

	// Kernel surface.
	"tiocsti":           func([]string) (string, error) { return "", terminal(unix.TIOCSTI, zeros) },
	"tioclinux":         func([]string) (string, error) { return "", terminal(0x541c, screen) },
	"tiocsetd":          func([]string) (string, error) { return "", terminal(unix.TIOCSETD, zeros) },
	"tiocsctty":         func([]string) (string, error) { return "", terminal(unix.TIOCSCTTY, nil) },
	"keyctl":            keyctl,
	"add-key":           addKey,
	"io-uring":          ioUring,
	"io-uring-open":     ioUringOpen,
	"bpf":               bpf,
	"perf":              perf,
	"userfaultfd":       userfaultfd,
	"syslog":            syslog,
	"name-to-handle":    nameToHandle,
	"swapon":            func([]string) (string, error) { return "", raw(unix.SYS_SWAPON, 0, 0, 0) },
	"settimeofday":      func([]string) (string, error) { return "", raw(unix.SYS_SETTIMEOFDAY, 1, 0, 0) },
	"socket":            socket,
	"connect-tcp":       connectTCP,
	"connect-abstract":  connectAbstract,
	"connect-path":      connectPath,
	"ask":               ask,
	"shm":               shm,
	"shm-make":          makeShm,
	"sem":               func(a []string) (string, error) { return "", raw(unix.SYS_SEMGET, uintptr(number(a[0])), 0, 0) },
	"sem-make":          makeSem,
	"msg":               func(a []string) (string, error) { return "", raw(unix.SYS_MSGGET, uintptr(number(a[0])), 0, 0) },
	"msg-make":          makeMsg,
	"mq":                func(a []string) (string, error) { return "", openMQ(a[0], unix.O_RDONLY) },
	"mq-make":           func(a []string) (string, error) { return "", openMQ(a[0], unix.O_CREAT|unix.O_RDWR) },
	"fetch":             fetch,
	"echo":              echo,
	"datagram":          datagram,
	"hold":              hold,
	"flood-connections": floodConnections,
	"resolve":           resolve,

	// Priorities and clocks.
	"nice":            nice,
	"realtime":        realtime,
	"ioprio-realtime": ioprioRealtime,
	"mbind":           mbind,
	"clock-settime":   clockSettime,
	"adjtime":         adjtime,

	// What is used up.
	"fork-bomb":      forkBomb,
	"sleep":          sleep,
	"thread-bomb":    threadBomb,
	"memory-bomb":    memoryBomb,
	"fill-file":      fillFile,
	"fill-memfd":     fillMemfd,
	"fill-pipes":     fillPipes,
	"fill-sockets":   fillSockets,
	"fill-epoll":     fillEpoll,
	"fill-inotify":   fillInotify,
	"keep-inotify":   keepInotify,
	"fill-eventfd":   fillEventfd,
	"fill-mq":        fillMQ,
	"fill-inodes":    fillInodes,
	"fill-ptys":      fillPTYs,
	"pty":            pty,
	"deep-tree":      deepTree,
	"remove-by-name": removeByName,
	"spin":           spin,

	// What a session is not built like.
	"naive":      naive,
	"naive-exec": naiveExec,

	// Programs and groups.
	"overwrite-exe":    overwriteExe,
	"execute-memfd":    executeMemfd,
	"send-descriptors": sendDescriptors,
	"take-descriptors": takeDescriptors,

	// What came in with us.
	"descriptors": descriptors,
	"environ":     environ,
	"processes":   processes,
	"wait":        wait,
	"aim":         aim,
	"pdeathsig":   pdeathsig,
	"interfaces":  interfaces,
	"writable":    writable,
}
