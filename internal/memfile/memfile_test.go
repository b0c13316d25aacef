package memfile

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// T052: nobody changes what was sealed, and it is known from what is not.
func TestOf(t *testing.T) {
	f, n, err := Of("x", strings.NewReader("hello"))
	if err != nil || n != 5 {
		t.Fatal(n, err)
	}
	defer f.Close()
	for what, err := range map[string]error{
		"written over": func() error { _, err := f.WriteAt([]byte("j"), 0); return err }(),
		"written to":   func() error { _, err := f.Write([]byte("j")); return err }(),
		"cut":          f.Truncate(1),
		"made longer":  f.Truncate(10),
		"mapped":       func() error { _, err := unix.Mmap(int(f.Fd()), 0, 5, unix.PROT_WRITE, unix.MAP_SHARED); return err }(),
		"sealed again": func() error { _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE); return err }(),
	} {
		if !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if size, err := Size(int(f.Fd())); size != 5 || err != nil {
		t.Errorf("%d, %v", size, err)
	}
	if b, err := io.ReadAll(io.NewSectionReader(f, 0, n)); string(b) != "hello" {
		t.Errorf("%q, %v", b, err)
	}
	if _, _, err := Of("x", io.MultiReader(strings.NewReader("a"), failing{})); err != io.ErrUnexpectedEOF {
		t.Errorf("of content that cannot be read: %v", err)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// T052: anything less than all seals is refused, and so is what is no memory file.
func TestSize(t *testing.T) {
	for seals, want := range map[int]error{
		0: ErrNotSealed,
		unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW:                     ErrNotSealed,
		unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_WRITE:                    ErrNotSealed,
		unix.F_SEAL_SEAL | unix.F_SEAL_GROW | unix.F_SEAL_WRITE:                      ErrNotSealed,
		unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE: nil,
	} {
		fd, err := unix.MemfdCreate("x", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
			t.Fatal(err)
		}
		if _, err := Size(fd); err != want {
			t.Errorf("with seals %#x: %v", seals, err)
		}
		unix.Close(fd)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if _, err := Size(int(r.Fd())); err != ErrNotSealed {
		t.Errorf("a pipe: %v", err)
	}
}

// A program without a name is executed, by whom its mode lets.
func TestOfProgram(t *testing.T) {
	content, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	f, err := OfProgram("x", content, 0o555)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("j"), 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("written over: %v", err)
	}
	if info, err := f.Stat(); err != nil || info.Mode().Perm() != 0o555 {
		t.Errorf("%v, %v", info, err)
	}
	if out, err := exec.Command("/proc/self/fd/" + strconv.Itoa(int(f.Fd()))).CombinedOutput(); err != nil {
		t.Errorf("%v %s", err, out)
	}
}
