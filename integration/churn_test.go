package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/client"
)

// atOnce is how many sessions are under way at a time.
const atOnce = 20

// TestChurn opens a session, runs a command in it and closes it, a thousand times, twenty
// at a time; the leak check around it must find nothing (T076), and no two sessions may have
// had the same id (R016). STOCKADE_CHURN says another number.
func TestChurn(t *testing.T) {
	t.Parallel()
	rounds := 1000
	if s := os.Getenv("STOCKADE_CHURN"); s != "" {
		var err error
		if rounds, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	c := start(t).Client()
	var given sync.Map
	took := repeat(t, rounds, func(ctx context.Context, i int) error {
		r, err := c.Open(ctx, api.SessionOpen{Profile: "workspace", Target: api.Target{Local: &api.Local{}}})
		if err := happened(r, err); err != nil {
			return err
		}
		session := r.SessionID
		if _, twice := given.LoadOrStore(session, i); twice {
			return fmt.Errorf("session id %s is given out twice", session)
		}
		word := fmt.Sprintf("round-%d", i)
		r, err = c.Exec(ctx, api.Exec{SessionID: session, Argv: []string{"echo", word}})
		if err := happened(r, err); err != nil {
			return err
		}
		if x := r.Payload.Exec; x.ExitCode != 0 || text(x.Stdout) != word+"\n" {
			return fmt.Errorf("exec: status %d, stdout %q", x.ExitCode, text(x.Stdout))
		}
		r, err = c.Close(ctx, api.SessionClose{SessionID: session, Mode: "force"})
		return happened(r, err)
	})
	t.Logf("%d × open, exec, close, %d at a time: p50 %v, p99 %v", rounds, atOnce, at(took, 0.5), at(took, 0.99))
}

// TestChurnOfEverything is TestChurn with all that a session can have: an overlay that is committed, a directory in which paths are
// protected, a network that is used. Beside what the leak check counts (mounts, groups, relays, descriptors), nothing stays
// in the caller's directories but what was committed (T076).
func TestChurnOfEverything(t *testing.T) {
	t.Parallel()
	const rounds = 200
	d, _ := startOutside(t)
	c := d.Client()
	probes, over, mine := shared(t), shared(t), shared(t)
	build(t, filepath.Join(probes, "probe"), "./probe")
	took := repeat(t, rounds, func(ctx context.Context, i int) error {
		r, err := c.Open(ctx, api.SessionOpen{Profile: "workspace", Target: api.Target{Local: &api.Local{
			NetworkMode: "egress",
			Mounts: []api.Mount{
				{HostPath: probes, GuestPath: "/mnt/probe", Mode: "ro"},
				{HostPath: over, GuestPath: "/data/over", Mode: "overlay", Bytes: 1 << 20},
				{HostPath: mine, GuestPath: "/data/mine", Mode: "rw"},
			},
		}}})
		if err := happened(r, err); err != nil {
			return err
		}
		session := r.SessionID
		script := fmt.Sprintf("echo %d >/data/over/%d; ! echo pwned 2>/dev/null >/data/mine/.envrc && unshare -U true 2>/dev/null; /mnt/probe/probe fetch 11.0.0.1:80 alpha.test", i, i)
		r, err = c.Exec(ctx, api.Exec{SessionID: session, Argv: []string{"sh", "-c", script}, Limits: api.Limits{PIDs: 16}})
		if err := happened(r, err); err != nil {
			return err
		}
		if x := r.Payload.Exec; text(x.Stdout) != "alpha.test at 11.0.0.1:80\n" || len(x.Denials) != 1 || x.Network == nil || x.Network.Connections != 1 {
			return fmt.Errorf("%+v: %q %q", x, text(x.Stdout), text(x.Stderr))
		}
		if i%2 == 0 {
			r, err = c.Commit(ctx, api.Workspace{SessionID: session})
		} else {
			r, err = c.Narrow(ctx, api.SessionNarrow{SessionID: session, Network: api.GrantNetwork{Mode: "none"}})
		}
		if err := happened(r, err); err != nil {
			return err
		}
		r, err = c.Close(ctx, api.SessionClose{SessionID: session, Mode: "force"})
		return happened(r, err)
	})
	t.Logf("%d × everything, %d at a time: p50 %v, p99 %v", rounds, atOnce, at(took, 0.5), at(took, 0.99))
	if left, err := os.ReadDir(mine); err != nil || len(left) > 0 {
		t.Errorf("left in the caller's directory: %v, %v", left, err)
	}
	if made, err := os.ReadDir(over); err != nil || len(made) != rounds/2 {
		t.Errorf("%d files were committed of %d, %v", len(made), rounds/2, err)
	}
}

// TestChurnOfRefusals opens sessions that cannot be had, in every way that a caller can
// bring about: each must leave as little behind as one that was closed (T077).
func TestChurnOfRefusals(t *testing.T) {
	t.Parallel()
	d := start(t)
	c := d.Client()
	dir, linked := t.TempDir(), shared(t)
	if err := os.Symlink("elsewhere", filepath.Join(linked, ".envrc")); err != nil {
		t.Fatal(err)
	}
	local := func(l api.Local) api.SessionOpen {
		return api.SessionOpen{Profile: "workspace", Target: api.Target{Local: &l}}
	}
	ways := []struct {
		name string
		open api.SessionOpen
		code api.Code
	}{
		{"denied mount", local(api.Local{Mounts: []api.Mount{{HostPath: "/etc", GuestPath: "/work", Mode: "ro"}}}), "mount_host_path_not_allowed"},
		{"missing source", local(api.Local{Mounts: []api.Mount{{HostPath: dir + "/none", GuestPath: "/work", Mode: "ro"}}}), ""},
		{"missing workdir", local(api.Local{Workdir: "/none/at/all"}), ""},
		{"mount below a file", local(api.Local{Mounts: []api.Mount{{HostPath: dir, GuestPath: "/work", Mode: "ro"}, {HostPath: "/bin/true", GuestPath: "/work/file/below", Mode: "ro"}}}), ""},
		{"network that the profile does not have", local(api.Local{NetworkMode: "full"}), "network_mode_not_allowed"},
		{"a root without a shell or anything", api.SessionOpen{Profile: "hermetic", Target: api.Target{Local: &api.Local{Root: api.Root{Paths: &api.RootPaths{Paths: []string{dir + "/none"}}}}}}, ""},
		{"an overlay over a file", local(api.Local{Mounts: []api.Mount{{HostPath: "/bin/true", GuestPath: "/work", Mode: "overlay"}}}), ""},
		{"a path that cannot be protected", local(api.Local{Mounts: []api.Mount{{HostPath: linked, GuestPath: "/work", Mode: "rw"}}}), api.CodeProtectedPath},
		{"a destination that nobody lists", local(api.Local{NetworkMode: "egress", Egress: []api.Destination{{Name: "example.org"}}}), "destination_not_allowed"},
		{"a root directory that is a file", local(api.Local{Root: api.Root{Dir: &api.RootDir{Path: "/bin/true"}}}), ""},
	}
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			repeat(t, 50, func(ctx context.Context, _ int) error {
				r, err := c.Open(ctx, w.open)
				if err != nil {
					return err
				}
				if r.Outcome == api.OutcomeOK {
					return fmt.Errorf("opened %s", r.SessionID)
				}
				if w.code != "" && r.ErrorCode != w.code && !slices.ContainsFunc(r.Deny, func(d api.Deny) bool { return d.Code == w.code }) {
					return fmt.Errorf("%s %v, want %s", r.ErrorCode, r.Deny, w.code)
				}
				return nil
			})
		})
	}
	t.Run("the caller is gone", func(t *testing.T) { vanish(t, c) })
}

// vanish gives up on opens at a different moment each time (T078). What was opened all the
// same must be in the list, and can be closed.
func vanish(t *testing.T, c *client.Client) {
	repeat(t, 100, func(ctx context.Context, i int) error {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(i)*time.Millisecond/2)
		defer cancel()
		c.Open(ctx, api.SessionOpen{Profile: "workspace", Target: api.Target{Local: &api.Local{}}})
		return nil
	})
}

// repeat calls do n times, atOnce at a time, and returns how long each took, sorted.
func repeat(t *testing.T, n int, do func(ctx context.Context, i int) error) []time.Duration {
	t.Helper()
	var (
		all  sync.WaitGroup
		mu   sync.Mutex
		took []time.Duration
		next = make(chan int)
	)
	for range atOnce {
		all.Go(func() {
			for i := range next {
				begin := time.Now()
				err := do(t.Context(), i)
				mu.Lock()
				if took = append(took, time.Since(begin)); err != nil {
					t.Errorf("round %d: %v", i, err)
				}
				mu.Unlock()
			}
		})
	}
	for i := range n {
		if t.Failed() {
			break
		}
		next <- i
	}
	close(next)
	all.Wait()
	slices.Sort(took)
	return took
}

func at(sorted []time.Duration, quantile float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(float64(len(sorted)-1)*quantile)].Round(100 * time.Microsecond)
}

// happened turns a receipt that is not ok into an error.
func happened(r *api.Receipt, err error) error {
	if err != nil {
		return err
	}
	if r.Outcome != api.OutcomeOK {
		return fmt.Errorf("%s: %s %s %s %v", r.Op, r.Outcome, r.ErrorCode, r.ErrorMessage, r.Deny)
	}
	return nil
}
