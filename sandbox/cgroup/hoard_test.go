package cgroup_test

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
)

func init() { roles["hoard"] = hoard }

// hoards take ever more of one kind of memory that is not the process's own, a step at a time.
var hoards = map[string]func(i int) error{
	"pipes": func(int) error {
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_NONBLOCK); err != nil {
			return err
		}
		return fill(p[1])
	},
	"sockets": func(int) error {
		p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		return fill(p[1])
	},
	"memory files": func(int) error {
		fd, err := unix.MemfdCreate("hoard", 0)
		if err != nil {
			return err
		}
		_, err = unix.Write(fd, make([]byte, 1<<20))
		return err
	},
	"tmpfs": func(i int) error {
		return os.WriteFile(os.Getenv("CGROUP_TEST_DIR")+"/"+strconv.Itoa(i), make([]byte, 1<<20), 0o600)
	},
	"names": func(i int) error { // inodes and dentries
		for j := range 1000 {
			if err := unix.Mkdir(fmt.Sprintf("%s/%d-%d", os.Getenv("CGROUP_TEST_DIR"), i, j), 0o700); err != nil {
				return err
			}
		}
		return nil
	},
}

func fill(fd int) error {
	block := make([]byte, 64<<10)
	for {
		if _, err := unix.Write(fd, block); err == unix.EAGAIN {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// hoard takes until it is told that there is no more, or killed.
func hoard() error {
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return err
	}
	files.Cur = files.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return err
	}
	// Its own, and seen by nobody else.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", os.Getenv("CGROUP_TEST_DIR"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "nr_inodes=0"); err != nil {
		return err
	}
	step := hoards[os.Getenv("CGROUP_TEST_HOARD")]
	for i := 0; ; i++ {
		if err := step(i); err != nil {
			return err
		}
	}
}

// T061 T062 T063: what the kernel holds for a session counts as the session's, whatever it is, and ends at its ceiling:
// the process is killed or told that there is no more. The control is a higher ceiling, at which more is had.
func TestHoards(t *testing.T) {
	const small, large = 24 << 20, 64 << 20
	for what := range hoards {
		t.Run(what, func(t *testing.T) {
			peaks := make(map[int64]int64)
			for _, ceiling := range []int64{small, large} {
				tree := open(t)
				s := create(t, tree, fmt.Sprintf("s%d", ceiling), sandbox.Limits{MemoryBytes: ceiling, CPUMillis: 4000, PIDs: 64})
				stand(t, s)
				before, err := s.Events()
				if err != nil {
					t.Fatal(err)
				}
				leaf, err := s.Leaf()
				if err != nil {
					t.Fatal(err)
				}
				cmd, told := in(t, s, leaf, "hoard", "CGROUP_TEST_HOARD="+what, "CGROUP_TEST_DIR="+t.TempDir())
				told.Close()
				began := time.Now()
				for cmd.ProcessState == nil && time.Since(began) < 30*time.Second {
					var info unix.Siginfo
					if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil); err == nil && info.Signo != 0 {
						cmd.Wait()
					}
					time.Sleep(5 * time.Millisecond)
				}
				if cmd.ProcessState == nil {
					t.Errorf("goes on with %d bytes", ceiling)
				}
				after, err := s.Events()
				if err != nil {
					t.Fatal(err)
				}
				peaks[ceiling] = after.MemoryPeak
				t.Logf("%v with %d MiB: peak %d, %d kills", cmd.ProcessState, ceiling>>20, after.MemoryPeak, after.OOMs-before.OOMs)
				if after.MemoryPeak > ceiling+1<<20 {
					t.Errorf("%d bytes with a ceiling of %d", after.MemoryPeak, ceiling)
				}
			}
			if peaks[large] <= small {
				t.Errorf("%d bytes at most: it was not the ceiling that ended it", peaks[large])
			}
		})
	}
}
