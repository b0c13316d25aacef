package reexec

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The test re-runs itself as a child, which replaces itself.
func TestMain(m *testing.M) {
	role := os.Getenv("REEXEC_TEST_ROLE")
	if role == "" {
		os.Exit(m.Run())
	}
	if err := roles[role](); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

var roles = map[string]func() error{"first": first}

const rounds = 3

// first hands a pipe with something in it to itself, three times.
func first() error {
	state, files, ok, err := Inherited()
	if err != nil {
		return err
	}
	if _, again := os.LookupEnv(variable); again {
		return fmt.Errorf("%s is still there", variable)
	}
	if !ok {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		if _, err := w.WriteString("what was written before"); err != nil {
			return err
		}
		files = []*os.File{r, w}
		fmt.Println(os.Getpid())
	}
	for i, f := range files {
		fd, err := descriptor(f)
		if err != nil {
			return err
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC == 0 {
			return fmt.Errorf("descriptor %d would be inherited: %v", i, err)
		}
		if mode, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || mode&unix.O_NONBLOCK == 0 {
			return fmt.Errorf("descriptor %d became blocking: %v", i, err)
		}
	}
	if len(state) < rounds {
		exe, err := os.Open("/proc/self/exe")
		if err != nil {
			return err
		}
		stray, err := os.Open(os.DevNull)
		if err != nil {
			return err
		}
		if ok {
			os.Setenv("STRAY", fmt.Sprint(stray.Fd()))
		}
		return Exec(exe, os.Args, os.Environ(), append(state, 'x'), files)
	}
	var st unix.Stat_t
	var stray int
	fmt.Sscan(os.Getenv("STRAY"), &stray)
	if err := unix.Fstat(stray, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR {
		return fmt.Errorf("descriptor %d was inherited without being meant to", stray)
	}
	files[1].Close()
	content, err := io.ReadAll(files[0])
	if err != nil {
		return err
	}
	fmt.Println(os.Getpid())
	fmt.Println(string(content))
	return nil
}

func TestExec(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "REEXEC_TEST_ROLE=first")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	pid := fmt.Sprint(cmd.Process.Pid)
	if want := []string{pid, pid, "what was written before", ""}; strings.Join(want, "\n") != string(out) {
		t.Errorf("%q", out)
	}
}

// What cannot be executed leaves everything as it was.
func TestExecFails(t *testing.T) {
	exe, err := os.Open("reexec_test.go")
	if err != nil {
		t.Fatal(err)
	}
	defer exe.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := Exec(exe, nil, nil, nil, []*os.File{r}); err == nil {
		t.Fatal("no error")
	}
	flags, err := unix.FcntlInt(r.Fd(), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("the next child would inherit it: %#x, %v", flags, err)
	}
	r.Close()
	if err := Exec(exe, nil, nil, nil, []*os.File{r}); err == nil {
		t.Error("a closed file was handed over")
	}
}

// A program that was handed nothing, or something else, does not take it for a state.
func TestInherited(t *testing.T) {
	if _, _, ok, err := Inherited(); ok || err != nil {
		t.Error(ok, err)
	}
	for _, value := range []string{"", "x", "-1", "0", "100000"} {
		t.Setenv(variable, value)
		if _, _, ok, err := Inherited(); !ok || err == nil {
			t.Errorf("%q: %v, %v", value, ok, err)
		}
	}
	for _, content := range []string{"", "\x01\x00\x00", "\x02\x00\x00\x00\x03\x00\x00\x00", "\xff\xff\xff\xff"} {
		f, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte(content), 0); err != nil {
			t.Fatal(err)
		}
		if _, _, err := unpack(f); err == nil {
			t.Errorf("%q was understood", content)
		}
		f.Close()
	}
}
