package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// until repeats what uses something up as often as the last argument says, or until there is no more. What is made is held
// until the probe ends.
func until(args []string, again func() error) error {
	for range number(args[len(args)-1]) {
		if err := again(); err != nil {
			return err
		}
	}
	return nil
}

// forkBomb makes processes that wait.
func forkBomb(args []string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	var children []*exec.Cmd
	defer func() {
		for _, c := range children {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}()
	return "", until(args, func() error {
		c := exec.Command(self, "sleep")
		if err := c.Start(); err != nil {
			return err
		}
		children = append(children, c)
		return nil
	})
}

func sleep([]string) (string, error) {
	time.Sleep(time.Hour)
	return "", nil
}

// threadBomb holds a thread for each goroutine. The Go runtime ends the process when it gets no more.
func threadBomb(args []string) (string, error) {
	var threads sync.WaitGroup
	err := until(args, func() error {
		threads.Add(1)
		go func() {
			runtime.LockOSThread()
			threads.Done()
			_ = unix.Pause()
		}()
		return nil
	})
	threads.Wait()
	return "", err
}

// memoryBomb touches page after page: MIB.
func memoryBomb(args []string) (string, error) {
	var held [][]byte
	return "", until(args, func() error {
		b, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return err
		}
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		held = append(held, b)
		return nil
	})
}

// fillFile writes a file and leaves it: FILE MIB.
func fillFile(args []string) (string, error) {
	f, err := os.Create(args[0])
	if err != nil {
		return "", err
	}
	defer f.Close()
	return "", fill(f, args)
}

func fill(f *os.File, args []string) error {
	block := make([]byte, 1<<20)
	return until(args, func() error {
		_, err := f.Write(block)
		return err
	})
}

func fillMemfd(args []string) (string, error) {
	fd, err := unix.MemfdCreate("fill", 0)
	if err != nil {
		return "", err
	}
	return "", fill(os.NewFile(uintptr(fd), "fill"), args)
}

// fillPipes fills pipes, each as large as it can be.
func fillPipes(args []string) (string, error) {
	block := make([]byte, 64<<10)
	return "", until(args, func() error {
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_NONBLOCK); err != nil {
			return err
		}
		_, _ = unix.FcntlInt(uintptr(p[1]), unix.F_SETPIPE_SZ, 1<<20)
		for {
			if _, err := unix.Write(p[1], block); err != nil {
				return nil
			}
		}
	})
}

func fillSockets(args []string) (string, error) {
	block := make([]byte, 64<<10)
	return "", until(args, func() error {
		p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		for {
			if _, err := unix.Write(p[0], block); err != nil {
				return nil
			}
		}
	})
}

func fillEpoll(args []string) (string, error) {
	event, err := unix.Eventfd(0, 0)
	if err != nil {
		return "", err
	}
	return "", until(args, func() error {
		e, err := unix.EpollCreate1(0)
		if err != nil {
			return err
		}
		return unix.EpollCtl(e, unix.EPOLL_CTL_ADD, event, &unix.EpollEvent{Events: unix.EPOLLIN})
	})
}

func fillInotify(args []string) (string, error) {
	return "", until(args, func() error {
		w, err := unix.InotifyInit1(0)
		if err != nil {
			return err
		}
		_, err = unix.InotifyAddWatch(w, "/", unix.IN_ALL_EVENTS)
		return err
	})
}

// keepInotify says what fillInotify would, and keeps what it has got.
func keepInotify(args []string) (string, error) {
	if _, err := fillInotify(args); err != nil {
		return "", err
	}
	fmt.Println("ok")
	time.Sleep(time.Hour)
	return "", nil
}

func fillEventfd(args []string) (string, error) {
	return "", until(args, func() error {
		_, err := unix.Eventfd(0, 0)
		return err
	})
}

// fillMQ makes message queues. Their memory is bounded by RLIMIT_MSGQUEUE.
func fillMQ(args []string) (string, error) {
	n := 0
	return "", until(args, func() error {
		n++
		name := append([]byte(fmt.Sprintf("fill%d", n)), 0)
		_, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(&name[0])), unix.O_CREAT|unix.O_RDWR, 0o600, 0, 0, 0)
		runtime.KeepAlive(name)
		if errno != 0 {
			return errno
		}
		return nil
	})
}

func fillInodes(args []string) (string, error) {
	if err := os.Mkdir(args[0], 0o755); err != nil {
		return "", err
	}
	n := 0
	return "", until(args, func() error {
		n++
		f, err := os.Create(filepath.Join(args[0], fmt.Sprint(n)))
		if err != nil {
			return err
		}
		return f.Close()
	})
}

// removeByName removes a tree from its leaves on, each by its whole name.
func removeByName(args []string) (string, error) {
	entries, err := os.ReadDir(args[0])
	for _, e := range entries {
		if err == nil {
			_, err = removeByName([]string{filepath.Join(args[0], e.Name())})
		}
	}
	if err != nil {
		return "", err
	}
	return "", os.Remove(args[0])
}

// deepTree makes directories in each other, deeper than a path can be long.
func deepTree(args []string) (string, error) {
	if err := os.Chdir(args[0]); err != nil {
		return "", err
	}
	for range number(args[1]) {
		if err := unix.Mkdir("deep", 0o755); err != nil {
			return "", err
		}
		if err := unix.Chdir("deep"); err != nil {
			return "", err
		}
	}
	return "", nil
}

func spin(args []string) (string, error) {
	runtime.GOMAXPROCS(number(args[0]))
	var all sync.WaitGroup
	for range number(args[0]) {
		all.Go(func() {
			for n := 0; ; n++ {
			}
		})
	}
	all.Wait()
	return "", nil
}

// fillPTYs opens terminals, and says how many there were.
func fillPTYs(args []string) (string, error) {
	n := 0
	err := until(args, func() error {
		if _, err := openPTY(); err != nil {
			return err
		}
		n++
		return nil
	})
	return fmt.Sprint(n, " ", verdict("", err)), nil
}

// pty opens a terminal and tells its number.
func pty([]string) (string, error) {
	n, err := openPTY()
	return fmt.Sprint(n), err
}

func openPTY() (int, error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return 0, err
	}
	return unix.IoctlGetInt(fd, unix.TIOCGPTN)
}

// overwriteExe holds what the processes around it execute, and tries for ever to open it for writing: what is executed cannot be,
// and what was, can (CVE-2019-5736).
func overwriteExe([]string) (string, error) {
	type file struct{ dev, ino uint64 }
	held := map[file]int{}
	for ; ; time.Sleep(100 * time.Microsecond) {
		all, _ := filepath.Glob("/proc/[0-9]*/exe")
		for _, path := range all {
			fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
			if err != nil {
				continue
			}
			var st unix.Stat_t
			_ = unix.Fstat(fd, &st)
			is := file{st.Dev, st.Ino}
			if _, known := held[is]; known {
				unix.Close(fd)
				continue
			}
			held[is] = fd
		}
		for _, fd := range held {
			link := fmt.Sprintf("/proc/self/fd/%d", fd)
			if open(link, unix.O_WRONLY) == nil {
				path, _ := os.Readlink(link)
				fmt.Println(path)
			}
		}
	}
}

// executeMemfd copies a program into memory and becomes it.
func executeMemfd(args []string) (string, error) {
	content, err := os.ReadFile(args[0])
	if err != nil {
		return "", err
	}
	fd, err := unix.MemfdCreate("program", 0)
	if err != nil {
		return "", err
	}
	if _, err := unix.Write(fd, content); err != nil {
		return "", err
	}
	return "", syscall.Exec(fmt.Sprintf("/proc/self/fd/%d", fd), args, os.Environ())
}
