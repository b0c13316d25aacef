package ripgrep

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test is its own helper, and its own rg.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 2 && os.Args[1] == "search":
		os.Exit(Serve())
	case os.Args[0] == "rg":
		os.Exit(pretend())
	}
	os.Exit(m.Run())
}

// pretend is an rg that does what a file says in the directory that it is to search.
func pretend() int {
	mode, err := os.ReadFile("mode")
	if err != nil {
		return 3
	}
	word, rest, _ := strings.Cut(string(mode), " ")
	switch word {
	case "print":
		fmt.Print(rest)
		return 0
	case "nothing":
		return 1
	case "complain":
		fmt.Print("./a\x00")
		fmt.Fprint(os.Stderr, rest)
		return 2
	case "arguments":
		fmt.Print(strings.Join(append(os.Args[1:], os.Environ()...), "\x00") + "\x00")
		return 0
	case "descriptors":
		entries, _ := os.ReadDir("/proc/self/fd")
		for _, e := range entries {
			at, _ := os.Readlink("/proc/self/fd/" + e.Name())
			fmt.Printf("%s %s\x00", e.Name(), at)
		}
		return 0
	case "flood":
		line := strings.Repeat("x", 1<<20)
		for {
			if _, err := fmt.Print(line); err != nil {
				return 2
			}
		}
	case "swallow":
		var all [][]byte
		for {
			all = append(all, slices.Repeat([]byte{1}, 1<<20))
		}
	case "hang":
		os.WriteFile("pid", []byte(strconv.Itoa(os.Getpid())), 0o600)
		time.Sleep(time.Hour)
	}
	return 3
}

func helper(t *testing.T) *Finder {
	t.Helper()
	own, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	f, err := Start("/proc/self/exe", "search", own)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// ask has a directory searched in which the pretended rg finds its mode.
func ask(t *testing.T, ctx context.Context, f *Finder, mode string) ([]string, string, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mode"), []byte(mode), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	list, err := f.Names(ctx, int(d.Fd()), "--pre=/bin/sh")
	return list, dir, err
}

// What an rg prints, says and does, and what is made of it: names, nothing, or a reason not to have asked.
func TestNames(t *testing.T) {
	f := helper(t)
	for _, row := range []struct {
		mode, want, fails string
	}{
		{"print ./a\x00./b/c\nd\x00e\x00", "a|b/c\nd|e", ""},
		{"nothing", "", ""},
		{"flood", "", "more than is believed"},
		{"print ./a\x00./b", "", "malformed"},
		{"complain rg: ./x: Permission denied (os error 13)\nrg: ./y: No such file or directory (os error 2)\n", "a", ""},
		{"complain rg: ./x: Input/output error (os error 5)\n", "", "os error 5"},
		{"complain rg: ./x: Permission denied (os error 13)\nrg: ./y: File name too long (os error 36)\n", "", "os error 36"},
		{"complain rg: ./new\nline: Permission denied (os error 13)\n", "", "exit status 2"},
		{"complain ", "", "exit status 2"},
		{"flood", "", "more than is believed"},
		{"swallow", "", "exit status 2"}, // the memory of one is bounded: a Go program ends with 2
		{"unknown", "", "exit status 3"},
	} {
		list, _, err := ask(t, t.Context(), f, row.mode)
		if row.fails == "" && (err != nil || strings.Join(list, "|") != row.want) || row.fails != "" && (err == nil || !strings.Contains(err.Error(), row.fails)) {
			t.Errorf("%q: %q %v, want %q %s", row.mode, list, err, row.want, row.fails)
		}
	}
}

// A pattern is a pattern, whatever it looks like; there is no environment, and no descriptor but the three.
func TestWhatItIsStartedWith(t *testing.T) {
	f := helper(t)
	got, _, err := ask(t, t.Context(), f, "arguments")
	if want := append(slices.Clone(options), "--regexp=--pre=/bin/sh", "--", ""); err != nil || !slices.Equal(got, want) {
		t.Errorf("%q %v, want %q", got, err, want)
	}
	got, _, err = ask(t, t.Context(), f, "descriptors")
	if err != nil || len(got) < 3 {
		t.Fatal(got, err)
	}
	for _, fd := range got {
		number, at, _ := strings.Cut(fd, " ")
		own := at == "" || strings.HasPrefix(at, "anon_inode:[event") || strings.HasPrefix(at, "/proc/") || strings.HasPrefix(at, "/sys/fs/cgroup/") // of a Go program
		if n, err := strconv.Atoi(number); err != nil || n > 2 && !own {
			t.Errorf("it has descriptor %s", fd)
		}
	}
}

// Who does not wait any more has the rg killed; a helper that is gone is told of, at once and from then on.
func TestEnds(t *testing.T) {
	f := helper(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	time.AfterFunc(500*time.Millisecond, func() { cancel(why) })
	_, dir, err := ask(t, ctx, f, "hang")
	if !errors.Is(err, why) {
		t.Error(err)
	}
	pid := 0
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if pid == 0 {
			b, _ := os.ReadFile(filepath.Join(dir, "pid"))
			pid, _ = strconv.Atoi(string(b))
		}
		if pid != 0 && unix.Kill(pid, 0) == unix.ESRCH {
			break
		}
		if time.Now().After(deadline) {
			if pid == 0 {
				break // it was killed before it could say who it is
			}
			t.Fatalf("process %d goes on", pid)
		}
	}
	if list, _, err := ask(t, t.Context(), f, "print a\x00"); err != nil || len(list) != 1 {
		t.Errorf("and then: %q %v", list, err)
	}
	unix.Shutdown(f.fd, unix.SHUT_RDWR)
	for range 2 {
		if _, _, err := ask(t, t.Context(), f, "nothing"); err == nil || strings.Contains(err.Error(), "exit") {
			t.Errorf("gone: %v", err)
		}
	}
}

// What an operator may name: a program that needs nothing else, and is an rg that is new enough.
func TestProgram(t *testing.T) {
	script := filepath.Join(t.TempDir(), "rg")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho ripgrep 15.0.0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{script: "bad magic", filepath.Dir(script): "is a directory", "/bin/sh": "not statically linked", "/nowhere": "no such file"} {
		if f, _, err := Program(t.Context(), path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v %v, want %s", path, f, err, want)
		}
	}
	for out, want := range map[string]string{
		"ripgrep 15.0.0 (rev 3a612f88b8)\n\nfeatures:+pcre2\n": "15.0.0", "ripgrep 13.0.0\n": "13.0.0",
		"ripgrep 12.1.1\n": "", "grep (GNU grep) 3.8\n": "", "": "", "ripgrep": "", "ripgrep x.y\n": "",
	} {
		if got, err := parseVersion(out); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q %v", out, got, err)
		}
	}
}
