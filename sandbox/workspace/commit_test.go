package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
)

// commitEnv has the test binary commit to the directory that it names, for as long as it lives.
const commitEnv = "STOCKADE_WORKSPACE_COMMIT"

const (
	killedFiles = 20
	killedSize  = 300_000
)

// commitForever writes every file anew, makes or removes a directory, and commits, over and over.
func commitForever(dir string) {
	t := new(testing.T)
	b := newBox(t, dir, nil)
	made := Reservation{Placeholders: placeholders(t, dir+".state"), Session: "s", Caller: owner.caller(), Source: sandbox.Source{Path: dir}}
	fmt.Println("ready")
	for round := byte('a'); ; round = 'a' + (round-'a'+1)%26 {
		err := inside(b.Tree, func(at func(string) string) error {
			for i := range killedFiles {
				if err := os.WriteFile(at(fmt.Sprint("dir/", i)), bytes.Repeat([]byte{round}, killedSize), 0o644); err != nil {
					return err
				}
			}
			if os.RemoveAll(at("\xfftree")); round%2 == 0 {
				return nil
			}
			for i := range 10 * killedFiles {
				if err := os.MkdirAll(at(fmt.Sprintf("\xfftree/%d/deep", i)), 0o755); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil {
			_, err = b.Commit(context.Background(), owner.caller(), b.source, nil, made.Commit())
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
}

// A commit that is killed, wherever that falls, leaves every file as it was or as it was to be, and a name of its own at
// most, which goes when the next runner begins.
func TestCommitKilled(t *testing.T) {
	files := map[string]string{}
	for i := range killedFiles {
		files[fmt.Sprint("dir/", i)] = strings.Repeat("A", killedSize)
	}
	dir := sourceDir(t, files)
	t.Cleanup(func() { os.RemoveAll(dir + ".state") })
	temporaries := func() (found []string) {
		err := filepath.WalkDir(dir, func(at string, e os.DirEntry, err error) error {
			if strings.HasPrefix(e.Name(), ".stockade-") {
				found = append(found, at)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	left := 0
	for range max(10, rounds(t)/50) {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), commitEnv+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ready := make([]byte, 5)
		if _, err := out.Read(ready); err != nil || string(ready) != "ready" {
			t.Fatalf("%q %v", ready, err)
		}
		time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed
		was := temporaries()
		if left += len(was); len(was) > 1 {
			t.Fatalf("%q are left", was)
		}
		if err := placeholders(t, dir+".state").Sweep(); err != nil {
			t.Fatal(err)
		}
		if now := temporaries(); len(now) > 0 {
			t.Fatalf("%q are left of %q", now, was)
		}
		names, err := os.ReadDir(filepath.Join(dir, "dir"))
		if err != nil {
			t.Fatal(err)
		}
		whole := 0
		for _, name := range names {
			at := filepath.Join(dir, "dir", name.Name())
			data, err := os.ReadFile(at)
			if err != nil || len(data) != killedSize || bytes.Count(data, data[:1]) != killedSize {
				t.Fatalf("%s: %d bytes, %v", at, len(data), err)
			}
			whole++
		}
		if whole != killedFiles {
			t.Fatalf("%d files, not %d", whole, killedFiles)
		}
	}
	t.Logf("%d temporary names were left", left)
}

// A caller that gives up stops a commit between two changes.
func TestCommitCanceled(t *testing.T) {
	dir := sourceDir(t, sample)
	b := newBox(t, dir, nil)
	b.act(t, change)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	before := content(t, dir)
	if c, err := b.Commit(ctx, owner.caller(), b.source, nil, unnoted); !errors.Is(err, context.Canceled) || c.Applied != 0 {
		t.Errorf("%+v %v", c, err)
	}
	equal(t, "the host's directory", content(t, dir), before)
}

// What a neighbour puts where a commit had its name is his, once that commit has come to its end.
func TestCommitForgotten(t *testing.T) {
	dir, state := sourceDir(t, sample), t.TempDir()
	b := newBox(t, dir, nil)
	b.act(t, change)
	p := placeholders(t, state)
	made := Reservation{Placeholders: p, Session: "s", Caller: sandbox.Caller{}, Source: sandbox.Source{Path: dir}}
	var last string
	note := made.Commit()
	_, err := b.Commit(t.Context(), owner.caller(), b.source, nil, func(temp, in string) error {
		if in != "" {
			last = filepath.Join(dir, in, temp)
		}
		return note(temp, in)
	})
	if err != nil || last == "" {
		t.Fatalf("%q %v", last, err)
	}
	if err := os.Mkdir(last, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := placeholders(t, state).Sweep(); err != nil { // as the next runner
		t.Error(err)
	}
	if err := p.Release("s"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(last); err != nil {
		t.Error(err)
	}
}

// What takes long to remove of what a commit has left, as where a neighbour fills it as quickly as it is emptied, does not keep the
// session from ending.
func TestCommitLeftMuch(t *testing.T) {
	defer func(before time.Duration) { emptying = before }(emptying)
	emptying = time.Millisecond
	dir := sourceDir(t, nil)
	made := Reservation{Placeholders: placeholders(t, t.TempDir()), Session: "s", Caller: sandbox.Caller{}, Source: sandbox.Source{Path: dir}}
	if err := made.Commit()("left", "."); err != nil {
		t.Fatal(err)
	}
	for n := range 20_000 {
		plant(t, filepath.Join(dir, "left", fmt.Sprint(n)), "", false)
	}
	if err := made.Placeholders.Release("s"); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "left")); len(left) == 0 {
		t.Errorf("nothing is left: %v", err)
	}
}

// T058: a program that has just been committed can be executed at once, while this process starts others.
func TestCommitExecute(t *testing.T) {
	program, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	dir := sourceDir(t, nil)
	b := newBox(t, dir, nil)
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			default:
				_ = exec.Command("/bin/true").Run()
			}
		}
	}()
	defer func() { close(end); <-ended }()
	for i := range rounds(t) / 5 {
		b.act(t, func(at func(string) string) error {
			return must(os.WriteFile(at("tool"), append(program, byte(i)), 0o755), unix.Chmod(at("tool"), 0o755))
		})
		b.commit(t)
		if err := exec.Command(filepath.Join(dir, "tool")).Run(); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
	}
}
