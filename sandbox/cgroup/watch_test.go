package cgroup

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"
)

// T073: an execution lives for as long as its group says so, also where the kernel has no watch or no descriptor left
// to tell by: nothing of it is given up before.
func TestEmptyUnwatched(t *testing.T) {
	watch, err := newWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer watch.close()
	for _, row := range []struct {
		name  string
		watch *watcher
		first string // what cgroup.events is as long as there is a process
	}{
		{"no watches left", &watcher{fd: -1}, "populated"},
		{"cannot be read for a while", watch, "."}, // as without a descriptor
	} {
		t.Run(row.name, func(t *testing.T) {
			g := group{hierarchy{mount: t.TempDir()}, ""}
			for name, content := range map[string]string{"populated": "populated 1\n", "empty": "populated 0\n"} {
				if err := os.WriteFile(g.file(name), []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			become := func(name string) error {
				return errors.Join(os.Symlink(name, g.file("next")), os.Rename(g.file("next"), g.file("cgroup.events")))
			}
			if err := become(row.first); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*longest)
			defer cancel()
			if err := row.watch.empty(ctx, g); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("with a process in it: %v", err)
			}
			told := make(chan error)
			go func() { told <- row.watch.empty(t.Context(), g) }()
			select {
			case err := <-told:
				t.Fatalf("with a process in it: %v", err)
			case <-time.After(2 * longest):
			}
			if err := become("empty"); err != nil {
				t.Fatal(err)
			}
			if err := <-told; err != nil {
				t.Error(err)
			}
		})
	}
}
