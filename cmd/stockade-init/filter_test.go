package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/filetool"
	"github.com/stockade-dev/stockade/sandbox/file"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("STOCKADE_TEST_CONFINED"); dir != "" {
		confined(dir, os.Getenv("STOCKADE_TEST_FILTER") == "1")
		return
	}
	os.Exit(m.Run())
}

// confined is a worker as a test needs it: what it tries to start, and a patch that it applies, are told on its stdout.
func confined(dir string, filtered bool) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	if filtered {
		if err := restrict(); err != nil {
			panic(err)
		}
	}
	// Of a program that does not exist: what the filter lets through, the kernel answers with ENOENT.
	none, empty := []byte("/nowhere\x00"), []uintptr{0}
	path, list := uintptr(unsafe.Pointer(&none[0])), uintptr(unsafe.Pointer(&empty[0]))
	_, _, e := syscall.RawSyscall(unix.SYS_EXECVE, path, list, list)
	fmt.Println("execve", unix.ErrnoName(e))
	at := unix.AT_FDCWD
	_, _, e = syscall.RawSyscall6(unix.SYS_EXECVEAT, uintptr(at), path, list, list, 0, 0)
	fmt.Println("execveat", unix.ErrnoName(e))
	runtime.KeepAlive(none)
	runtime.KeepAlive(empty)
	fmt.Println("a shell", exec.Command("/bin/sh", "-c", "exit 0").Run() == nil)

	root, err := os.Open(dir)
	if err != nil {
		panic(err)
	}
	tools, err := filetool.Open(filetool.Config{Root: root, Workdir: "/"})
	if err != nil {
		panic(err)
	}
	for format, patch := range map[string]string{
		"v4a":     "*** Begin Patch\n*** Update File: a\n@@\n-one\n+two\n*** Add File: b\n+new\n*** End Patch\n",
		"unified": "--- a/c\n+++ b/c\n@@ -1 +1 @@\n-one\n+two\n",
	} {
		ask := file.Patch{Format: format, Patch: file.PatchText{InlineText: &file.InlineText{Text: patch}}}
		fmt.Println(format, tools.Do(context.Background(), &file.Request{Op: file.OpPatch, Patch: &ask}).Patch.Status)
	}
}

// R206: a worker applies patches by itself: it can start neither a program nor a process. The control is the same without the filter.
func TestNoProgramIsStarted(t *testing.T) {
	for filter, want := range map[string][]string{
		"1": {"execve EPERM", "execveat EPERM", "a shell false"},
		"0": {"execve ENOENT", "execveat ENOENT", "a shell true"},
	} {
		dir := t.TempDir()
		for _, name := range []string{"a", "c"} {
			if err := os.WriteFile(dir+"/"+name, []byte("one\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), "STOCKADE_TEST_CONFINED="+dir, "STOCKADE_TEST_FILTER="+filter)
		said, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		for _, line := range append(want, "v4a ok", "unified ok") {
			if !strings.Contains("\n"+string(said), "\n"+line+"\n") {
				t.Errorf("filter %s: no %q in\n%s", filter, line, said)
			}
		}
		for name, content := range map[string]string{"a": "two\n", "b": "new\n", "c": "two\n"} {
			if got, _ := os.ReadFile(dir + "/" + name); string(got) != content {
				t.Errorf("filter %s: %s is %q", filter, name, got)
			}
		}
	}
}
