package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// What changes the policy is seen, once for what happens at once; what happens beside it is not.
func TestWatch(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	move := func(from, to string) {
		t.Helper()
		if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to string) {
		t.Helper()
		if err := os.Symlink(to, dir+"/link.new"); err != nil {
			t.Fatal(err)
		}
		move("link.new", "current")
	}
	put("r1/open/a.rego", "1")
	put("r2/open/a.rego", "2")
	put("b.tar.gz", "1")
	link("r1")
	for _, row := range []struct {
		name, path string
		steps      []func()
	}{
		{"a tarball", "b.tar.gz", []func(){
			func() { put("b.new", "2"); move("b.new", "b.tar.gz") },
			func() { put("b.tar.gz", "3") },
			func() { os.Remove(dir + "/b.tar.gz") },
			func() { put("b.tar.gz", "4") },
		}},
		{"a directory", "r1", []func(){
			func() { put("r1/open/a.rego", "2") },
			func() { put("r1/exec/new.rego", "1"); put("r1/exec/newer.rego", "1") },
			func() { put("r1/exec/new.rego", "2") }, // in a directory that was not there at first
			func() { os.RemoveAll(dir + "/r1/exec") },
			func() { move("r1", "r0"); move("r2", "r1") },
			func() { put("r1/open/a.rego", "3") }, // in the one that came in its place
		}},
		{"a link", "current", []func(){
			func() { put("r1/open/a.rego", "4") },
			func() { link("r0") },
			func() { put("r0/open/a.rego", "5") },
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			seen := make(chan bool, 100)
			var watching sync.WaitGroup
			watching.Go(func() {
				if err := watch(ctx, filepath.Join(dir, row.path), slog.New(slog.DiscardHandler), func() { seen <- true }); err != nil {
					t.Error(err)
				}
			})
			defer watching.Wait()
			defer stop()
			time.Sleep(200 * time.Millisecond)
			for i, step := range row.steps {
				step()
				select {
				case <-seen:
				case <-time.After(10 * time.Second):
					t.Fatalf("step %d is not seen", i)
				}
				put("beside", "x")
				put(".hidden", "x")
				select {
				case <-seen:
					t.Errorf("step %d is seen twice, or something beside it", i)
				case <-time.After(2 * quietFor):
				}
			}
		})
	}
}
