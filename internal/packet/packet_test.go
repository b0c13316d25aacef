package packet

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/memfile"
)

func pair(t testing.TB) (a, b int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { CloseAll(fds[:]) })
	return fds[0], fds[1]
}

func openFiles(t testing.TB) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// What is sent last is received, however soon its sender closes, and whether that has read everything or not.
func TestLastWords(t *testing.T) {
	const rounds = 5000
	buf := new(Buffer)
	for _, unread := range []bool{false, true} {
		lost := 0
		for range rounds {
			fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
			if err != nil {
				t.Fatal(err)
			}
			if unread {
				if err := Send(fds[0], []byte("question")); err != nil {
					t.Fatal(err)
				}
			}
			gone := make(chan error, 1)
			go func() {
				err := Send(fds[1], []byte("last"))
				unix.Close(fds[1])
				gone <- err
			}()
			var got []byte
			for err = unix.EAGAIN; err == unix.EAGAIN; {
				got, _, err = buf.Receive(fds[0])
			}
			if string(got) != "last" {
				lost++
			}
			unix.Close(fds[0])
			if err := <-gone; err != nil {
				t.Fatal(err)
			}
		}
		if lost > 0 {
			t.Errorf("unread %v: %d of %d last messages were lost", unread, lost, rounds)
		}
	}
}

func TestSizes(t *testing.T) {
	a, b := pair(t)
	buf := new(Buffer)
	before := openFiles(t)
	for _, size := range []int{0, 1, Inline - 1, Inline, Inline + 1, 1 << 20, Large} {
		for _, n := range []int{0, 1, Descriptors} {
			sent := bytes.Repeat([]byte{'x'}, size)
			fds := make([]int, n)
			if err := Send(a, sent, fds...); err != nil {
				t.Fatalf("%d bytes, %d descriptors: %v", size, n, err)
			}
			got, gotFDs, err := buf.Receive(b)
			if err != nil || !bytes.Equal(got, sent) || len(gotFDs) != n {
				t.Errorf("%d bytes, %d descriptors: got %d, %d, %v", size, n, len(got), len(gotFDs), err)
			}
			for _, fd := range gotFDs {
				if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
					t.Errorf("descriptor %d is not close-on-exec: %v", fd, err)
				}
			}
			CloseAll(gotFDs)
		}
	}
	if err := Send(a, make([]byte, Large+1)); err != errTooLarge {
		t.Errorf("beyond Large: %v", err)
	}
	if err := Send(a, nil, make([]int, Descriptors+1)...); err != errTooManyFDs {
		t.Errorf("beyond Descriptors: %v", err)
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d descriptors, then %d", before, after)
	}
}

// T052: whatever a peer sends, no descriptor stays open.
func TestHostile(t *testing.T) {
	unsealed, err := unix.MemfdCreate("x", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(unsealed)
	hello, _, err := memfile.Of("x", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	defer hello.Close()
	sealed := int(hello.Fd())
	for _, tt := range []struct {
		name string
		body []byte
		fds  []int
		want error
	}{
		{"empty", nil, nil, io.EOF},
		{"unknown mark", []byte{2}, []int{0}, errMalformed},
		{"a memfd is announced and missing", []byte{inMemfd}, nil, errMalformed},
		{"a memfd and a body", []byte{inMemfd, 1}, []int{sealed}, errMalformed},
		{"not sealed", []byte{inMemfd}, []int{unsealed, 0}, memfile.ErrNotSealed},
		{"no memfd", []byte{inMemfd}, []int{0, 0}, memfile.ErrNotSealed},
		{"too many descriptors", []byte{inBody}, make([]int, Descriptors+1), errMalformed},
		{"far too many descriptors", []byte{inBody}, make([]int, 253), ErrDescriptors},
		{"too long", make([]byte, Inline+2), []int{0}, errTruncated},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, b := pair(t)
			before := openFiles(t)
			var rights []byte
			if len(tt.fds) > 0 {
				rights = unix.UnixRights(tt.fds...)
			}
			if err := unix.Sendmsg(a, tt.body, rights, nil, 0); err != nil {
				t.Fatal(err)
			}
			_, fds, err := new(Buffer).Receive(b)
			if err != tt.want || fds != nil {
				t.Errorf("got %v, %v, want %v", fds, err, tt.want)
			}
			if after := openFiles(t); after != before {
				t.Errorf("%d descriptors, then %d", before, after)
			}
		})
	}
}

// TestNoDescriptors: who may have no more descriptors gets what was said, also by way of a memfd, for which there is one
// left; what comes next arrives whole (T073).
func TestNoDescriptors(t *testing.T) {
	a, b := pair(t)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, tt := range []struct {
		name    string
		payload []byte
		free    uint64
		want    error
	}{
		{"none for two", []byte("said"), 0, ErrDescriptors},
		{"one for two", []byte("said"), 1, ErrDescriptors},
		{"none for a memfd", make([]byte, Inline+1), 0, errTruncated},
		{"one for a memfd and two", make([]byte, Inline+1), 1, ErrDescriptors},
		{"enough", []byte("said"), 1000, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := Send(a, tt.payload, int(null.Fd()), int(null.Fd())); err != nil {
				t.Fatal(err)
			}
			before := openFiles(t)
			var usual unix.Rlimit
			if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &usual); err != nil {
				t.Fatal(err)
			}
			lowest, err := unix.FcntlInt(null.Fd(), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			unix.Close(lowest)
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(lowest) + tt.free, Max: usual.Max}); err != nil {
				t.Fatal(err)
			}
			got, fds, err := new(Buffer).Receive(b)
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &usual); err != nil {
				t.Fatal(err)
			}
			if err != tt.want || tt.want != errTruncated && !bytes.Equal(got, tt.payload) || (len(fds) == 2) != (err == nil) {
				t.Errorf("got %d bytes, %v, %v, want %v", len(got), fds, err, tt.want)
			}
			CloseAll(fds)
			if after := openFiles(t); after != before {
				t.Errorf("%d descriptors, then %d", before, after)
			}
		})
	}
}

func TestEnd(t *testing.T) {
	a, b := pair(t)
	unix.Shutdown(a, unix.SHUT_WR)
	if _, _, err := new(Buffer).Receive(b); err != io.EOF {
		t.Errorf("got %v", err)
	}
	unix.Shutdown(b, unix.SHUT_RD)
	if err := Send(a, []byte("x")); err != unix.EPIPE {
		t.Errorf("got %v", err)
	}
}

// Of a socket that was closed it is said as of every other file.
func TestClosed(t *testing.T) {
	fd, _ := pair(t)
	own, err := unix.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(own, true); err != nil {
		t.Fatal(err)
	}
	c, err := NewConn(os.NewFile(uintptr(own), "socket"))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := c.Send([]byte("x")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("send: %v", err)
	}
	if _, _, err := c.Receive(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("receive: %v", err)
	}
}
