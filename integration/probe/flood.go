package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// until repeats what uses something up, and returns the error that ends it. What is made is held
// until the probe ends.
func until(again func() error) error {
	for {
		if err := again(); err != nil {
			return err
		}
	}
}

// forkBomb makes processes that wait, until there can be no more.
func forkBomb([]string) (string, error) {
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
	return "", until(func() error {
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
func threadBomb([]string) (string, error) {
	for range 10_000 {
		go func() {
			runtime.LockOSThread()
			_ = unix.Pause()
		}()
	}
	time.Sleep(5 * time.Second)
	return "10000 threads", nil
}

// memoryBomb touches page after page.
func memoryBomb([]string) (string, error) {
	var held [][]byte
	for range 1 << 14 {
		b, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return "", err
		}
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		held = append(held, b)
	}
	return fmt.Sprint(len(held), " MiB"), nil
}

func fillFile(f *os.File) error {
	block := make([]byte, 1<<20)
	for range 1 << 14 {
		if _, err := f.Write(block); err != nil {
			return err
		}
	}
	return errors.New("16 GiB")
}

func fillShm(args []string) (string, error) {
	f, err := os.Create(args[0])
	if err != nil {
		return "", err
	}
	defer os.Remove(args[0])
	defer f.Close()
	return "", fillFile(f)
}

func fillMemfd([]string) (string, error) {
	fd, err := unix.MemfdCreate("fill", 0)
	if err != nil {
		return "", err
	}
	return "", fillFile(os.NewFile(uintptr(fd), "fill"))
}

// fillPipes fills every pipe that can be had, as large as it can be.
func fillPipes([]string) (string, error) {
	block := make([]byte, 64<<10)
	return "", until(func() error {
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

func fillSockets([]string) (string, error) {
	block := make([]byte, 64<<10)
	return "", until(func() error {
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

func fillEpoll([]string) (string, error) {
	event, err := unix.Eventfd(0, 0)
	if err != nil {
		return "", err
	}
	return "", until(func() error {
		e, err := unix.EpollCreate1(0)
		if err != nil {
			return err
		}
		return unix.EpollCtl(e, unix.EPOLL_CTL_ADD, event, &unix.EpollEvent{Events: unix.EPOLLIN})
	})
}

func fillInotify([]string) (string, error) {
	return "", until(func() error {
		w, err := unix.InotifyInit1(0)
		if err != nil {
			return err
		}
		_, err = unix.InotifyAddWatch(w, "/", unix.IN_ALL_EVENTS)
		return err
	})
}

func fillEventfd([]string) (string, error) {
	return "", until(func() error {
		_, err := unix.Eventfd(0, 0)
		return err
	})
}

// fillMQ makes message queues. Their memory is bounded by RLIMIT_MSGQUEUE.
func fillMQ([]string) (string, error) {
	n := 0
	return "", until(func() error {
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
	return "", until(func() error {
		n++
		f, err := os.Create(filepath.Join(args[0], fmt.Sprint(n)))
		if err != nil {
			return err
		}
		return f.Close()
	})
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

// fillPTYs opens terminals until there are no more, and says how many there were.
func fillPTYs([]string) (string, error) {
	n := 0
	err := until(func() error {
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

// forkCgroups looks into which groups children are born.
func forkCgroups(args []string) (string, error) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	for range number(args[0]) {
		out, err := exec.Command("/proc/self/exe", "own-cgroup").Output()
		if err != nil {
			return "", err
		}
		if strings.TrimSpace(string(out)) != strings.TrimSpace(string(own)) {
			return fmt.Sprintf("%q beside %q", out, own), nil
		}
	}
	if strings.Contains(string(own), "..") {
		return string(own), nil
	}
	return "one", nil
}

func ownCgroup([]string) (string, error) {
	b, err := os.ReadFile("/proc/self/cgroup")
	return strings.TrimSpace(string(b)), err
}

// overwriteExe opens for ever what the processes around it execute, for writing.
func overwriteExe([]string) (string, error) {
	for {
		all, _ := filepath.Glob("/proc/[0-9]*/exe")
		for _, path := range all {
			held, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
			if err != nil {
				continue
			}
			fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", held), unix.O_WRONLY|unix.O_CLOEXEC, 0)
			if err == nil {
				link, _ := os.Readlink(path)
				if !strings.HasPrefix(link, "/tmp/") { // its own copies may be written
					fmt.Println(path, link)
				}
				unix.Close(fd)
			}
			unix.Close(held)
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
