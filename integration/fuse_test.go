package integration

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/client"
)

// fuse is a file system in a test: a directory with the file "f", until it is told to be silent.
type fuse struct {
	fd     int
	silent atomic.Int32
	abort  func() // ends everything that waits for it
}

// How it is silent: it reads no questions, which their askers can be killed out of; or reads them and does not answer, which they cannot.
const (
	deaf = iota + 1
	mute
)

// What of linux/fuse.h is needed.
const (
	fuseLookup, fuseGetattr, fuseOpen, fuseRead, fuseStatfs = 1, 3, 14, 15, 17
	fuseForget, fuseInit, fuseInterrupt, fuseBatchForget    = 2, 26, 36, 42
)

// mountFuse mounts one on a directory of the test's own. At the end it is aborted.
func mountFuse(t *testing.T, dir string) *fuse {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		skip(t, "no file system can hang here: /dev/fuse: "+err.Error())
	}
	f := &fuse{fd: fd}
	if err := unix.Mount("test", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("fd=%d,rootmode=40755,user_id=0,group_id=0,allow_other,default_permissions", fd)); err != nil {
		unix.Close(fd)
		skip(t, "no file system can hang here: "+err.Error())
	}
	stop, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		f.serve(stop)
	}()
	f.abort = sync.OnceFunc(func() {
		close(stop)
		<-over
		unix.Close(fd)
	})
	t.Cleanup(func() {
		f.abort()
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *fuse) serve(stop <-chan struct{}) {
	question := make([]byte, 1<<17)
	for {
		select {
		case <-stop:
			return
		default:
		}
		poll := []unix.PollFd{{Fd: int32(f.fd), Events: unix.POLLIN}}
		if n, _ := unix.Poll(poll, 50); n <= 0 || f.silent.Load() == deaf {
			if n > 0 {
				time.Sleep(50 * time.Millisecond)
			}
			continue
		}
		n, err := unix.Read(f.fd, question)
		if err != nil || n < 40 || f.silent.Load() == mute {
			continue
		}
		f.answer(question[:n])
	}
}

func (f *fuse) answer(q []byte) {
	le := binary.LittleEndian
	op, id, node := le.Uint32(q[4:]), le.Uint64(q[8:]), le.Uint64(q[16:])
	var fault syscall.Errno
	var body []byte
	attr := func(node uint64) []byte { // struct fuse_attr
		a := make([]byte, 88)
		mode, size := uint32(unix.S_IFREG|0o644), uint64(3)
		if node == 1 {
			mode, size = unix.S_IFDIR|0o755, 0
		}
		le.PutUint64(a, node)
		le.PutUint64(a[8:], size)
		le.PutUint32(a[60:], mode)
		le.PutUint32(a[64:], 1)
		le.PutUint32(a[80:], 4096)
		return a
	}
	switch op {
	case fuseForget, fuseBatchForget, fuseInterrupt:
		return
	case fuseInit: // 7.41, with extended flags: owners may be mapped (Linux 6.12)
		body = make([]byte, 64)
		le.PutUint32(body, 7)
		le.PutUint32(body[4:], 41)
		le.PutUint32(body[12:], 1<<30)
		le.PutUint32(body[20:], 4096)
		le.PutUint32(body[32:], 1<<8)
	case fuseLookup:
		if !bytes.Equal(bytes.TrimRight(q[40:], "\x00"), []byte("f")) {
			fault = unix.ENOENT
			break
		}
		body = make([]byte, 40, 128) // struct fuse_entry_out: nothing is remembered
		le.PutUint64(body, 2)
		body = append(body, attr(2)...)
	case fuseGetattr:
		body = append(make([]byte, 16, 104), attr(node)...)
	case fuseOpen:
		body = make([]byte, 16)
		le.PutUint32(body[8:], 1) // FOPEN_DIRECT_IO
	case fuseRead:
		if le.Uint64(q[48:]) == 0 {
			body = []byte("hi\n")
		}
	case fuseStatfs:
		body = make([]byte, 80)
	default:
		fault = unix.ENOSYS
	}
	head := make([]byte, 16)
	le.PutUint32(head, uint32(16+len(body)))
	le.PutUint32(head[4:], uint32(-int32(fault)))
	le.PutUint64(head[8:], id)
	_, _ = unix.Write(f.fd, append(head, body...))
}

// TestHungFileSystem (T151): a mount of the session stops answering, in either way. The file tool that asks it ends with its code in its
// time; tools elsewhere in the session are served soon after, by another worker; the one that hangs ends as soon as it can be killed; the
// session is closed, and no other session notices. Controls: the same file while it answers, and a process that really cannot be killed.
func TestHungFileSystem(t *testing.T) {
	needRoot(t)
	silences := map[string]int32{"askers can be killed": deaf, "askers cannot be killed": mute}
	dirs, systems := map[string]string{}, map[string]*fuse{}
	for name := range silences {
		dirs[name] = shared(t)
		systems[name] = mountFuse(t, dirs[name])
	}
	c := start(t).Client() // what is mounted later it does not see
	t.Run("both", func(t *testing.T) {
		for name, how := range silences {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				testSilence(t, c, dirs[name], systems[name], how)
			})
		}
	})
}

func testSilence(t *testing.T, c *client.Client, dir string, system *fuse, how int32) {
	defer system.abort() // whatever stands: nothing could end otherwise
	r, err := c.Open(t.Context(), api.SessionOpen{Profile: "workspace", Degraded: degraded(), Target: api.Target{Local: &api.Local{
		Workdir: "/tmp", Mounts: []api.Mount{{HostPath: dir, GuestPath: "/mnt/hung", Mode: "ro"}},
	}}})
	if err == nil && len(r.Deny)+len(r.ErrorCode) > 0 && strings.Contains(r.ErrorMessage, "cannot map the owners") {
		t.Logf("no session can have such a mount here: %s", r.ErrorMessage) // Linux before 6.12
		return
	}
	d := &desk{t, c, settled(t, r, err).SessionID}
	defer end(t, c, d.session)
	neighbour := &desk{t, c, opened(t, c, nil).SessionID}
	processes := func() string {
		return strings.TrimSpace(text(shell(t, c, d.session, "set -- /proc/[0-9]*; echo $#").Payload.Exec.Stdout))
	}
	until := func(what string, within time.Duration, holds func() bool) {
		t.Helper()
		begun := time.Now()
		for !holds() {
			if time.Since(begun) > within {
				t.Errorf("not within %v: %s", within, what)
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	const there, elsewhere = `{"path":"/mnt/hung/f"}`, `{"path":"/tmp/f","content":{"inline_text":{"text":"x"}}}`
	none := processes()
	for range 2 {
		if got, r := d.use("read_file", there); got != "ok ok" || r.Payload.File.Read.Content.InlineText.Text != "hi\n" {
			t.Fatalf("control: %s (%s)", got, r.ErrorMessage)
		}
	}
	one := processes()
	if none == one {
		t.Errorf("control: %s processes, with a worker too", none)
	}
	system.silent.Store(how)
	begun := time.Now()
	hung := make(chan string, 1)
	go func() {
		got, _ := d.use("read_file", there)
		hung <- got
	}()
	if got, r := neighbour.use("write_file", elsewhere); got != "ok ok" || time.Since(begun) > 8*time.Second {
		t.Errorf("another session after %v: %s (%s)", time.Since(begun), got, r.ErrorMessage)
	}
	// The look has 10 s; the record of it waits for the disk.
	if got := <-hung; got != "faulted error file_worker_lost" || time.Since(begun) < 9*time.Second || time.Since(begun) > 60*time.Second {
		t.Errorf("a file that does not answer, after %v: %s", time.Since(begun), got)
	}
	t.Logf("told after %v", time.Since(begun).Round(time.Millisecond))
	if got, r := d.use("write_file", elsewhere); got != "ok ok" { // by the same worker, which has turns left
		t.Errorf("elsewhere: %s (%s)", got, r.ErrorMessage)
	}
	first := one
	if how == mute { // it stays, and serves nobody
		two := func() bool { // with the one that has come for it
			got, _ := d.use("write_file", elsewhere)
			return got == "ok ok" && processes() > first
		}
		until("another worker beside the one that hangs", 20*time.Second, two)
		system.abort()
	} else {
		pid := func() string {
			return text(shell(t, c, d.session, "for p in /proc/[0-9]*; do echo ${p#/proc/}; done | sort -n | head -2 | tail -1").Payload.Exec.Stdout)
		}
		old := pid()
		until("the worker is gone", 20*time.Second, func() bool { return pid() != old })
		if got, r := d.use("write_file", elsewhere); got != "ok ok" {
			t.Errorf("elsewhere, by another worker: %s (%s)", got, r.ErrorMessage)
		}
	}
	until("one worker is left", 20*time.Second, func() bool { return processes() == one })
	t.Logf("all of it in %v", time.Since(begun).Round(time.Millisecond))
}
