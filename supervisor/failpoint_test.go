//go:build failpoint

package supervisor

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// R251, R254: a supervisor is killed between any two steps of a snapshot and of retention. What it had acknowledged is
// there afterwards or is said to be gone, what a record names is there, and nothing is left that nothing
// names.
func TestRetentionFailpoints(t *testing.T) {
	if state := os.Getenv("RETENTION_STORY_STATE"); state != "" {
		tellRetention(t, state)
		return
	}
	for _, point := range retentionPoints(t) {
		t.Run(point, func(t *testing.T) {
			killed := 0
			for nth := 1; nth <= 3; nth++ {
				a := &aging{bench: &bench{t: t, fake: newFake(), state: t.TempDir() + "/state"}, ahead: new(atomic.Int64)}
				child := exec.Command(os.Args[0], "-test.run=^TestRetentionFailpoints$")
				child.Env = append(os.Environ(), "RETENTION_STORY_STATE="+a.state, fmt.Sprintf("STOCKADE_FAILPOINT=%s:%d", point, nth))
				out, err := child.Output()
				if err == nil {
					break // it has not so many hits
				}
				if failed, ok := errors.AsType[*exec.ExitError](err); !ok || failed.Exited() {
					t.Fatalf("%v: %s", err, out)
				}
				killed++
				var acked []string
				for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
					if id, ok := strings.CutPrefix(lines.Text(), "acknowledged "); ok {
						acked = append(acked, id)
					}
				}
				if len(acked) == 0 {
					t.Fatalf("%s", out)
				}
				a.age(retentionStory)
				afterKill(t, a, acked)
				if t.Failed() {
					t.Fatalf("hit %d", nth)
				}
			}
			if killed == 0 {
				t.Error("nobody comes by here")
			}
		})
	}
}

// retentionStory is how far the story puts its clock forward.
const retentionStory = 3 * 40 * time.Minute

func storyLimits(c *Config) {
	c.Defaults.SegmentBytes = 32 << 10
	c.Defaults.HistoryAge = 20 * time.Minute
	c.Defaults.JournalAge = 30 * time.Minute
	c.Defaults.OutputPerSession = 60_000
}

// tellRetention lives a life in which everything that retention does is done, several times.
func tellRetention(t *testing.T, state string) {
	a := &aging{bench: &bench{t: t, fake: newFake(), state: state}, ahead: new(atomic.Int64)}
	a = a.startAgain(storyLimits)
	defer a.stop()
	ack := func(r *api.Receipt) *api.Receipt {
		fmt.Println("acknowledged", r.IntentID)
		return r
	}
	for chapter := range 3 {
		id := ack(a.open()).SessionID
		for i := range 4 {
			ack(a.exec(id, "flood", fmt.Sprint(20_000+100*chapter+i)))
			for range 6 {
				ack(a.exec(id, "true", "forbidden"))
			}
		}
		a.put(fmt.Sprint("content ", chapter))
		ack(a.close(id))
		a.age(40 * time.Minute)
		for range 2 {
			ack(a.exec(id, "true"))
			a.round()
		}
	}
}

func afterKill(t *testing.T, a *aging, acked []string) {
	t.Helper()
	r, err := Fsck(a.state, FsckOptions{Deep: true})
	if err != nil || !r.OK {
		t.Errorf("killed: %+v %v", r, err)
	}
	a = a.startAgain(storyLimits)
	defer a.stop()
	before := a.digest()
	if got, err := Replay(a.state, ReplayOptions{Records: before.records, Digest: before.digest, Verify: true}); err != nil || !got.OK() {
		t.Errorf("started again: %+v %v", got, err)
	}
	gone := 0
	for _, intent := range acked {
		_, err := a.receipt(intent)
		if code(err) == api.CodeGone {
			gone++
		} else if err != nil {
			t.Errorf("%s: %v", intent, err)
		}
	}
	if gone > 0 && a.journal.First() == 0 {
		t.Errorf("%d receipts are gone, and nothing was trimmed", gone)
	}
	// What is in the store is named by something; the supervisor's own round, at its start, may be in the middle
	// of trimming what ours have swept before.
	var unnamed []string
	for range 50 {
		a.round()
		unnamed = nil
		if err := a.blobs.Each(func(ref string, _ int64) error {
			if !a.chronicle.names.has(ref) {
				unnamed = append(unnamed, ref)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		if r := a.sound(); len(unnamed) == 0 && len(r.Findings) == 0 && r.Spool.Count == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("after rounds: %+v, and %q are named by nothing", a.sound(), unnamed)
}

// retentionPoints reads the names of the points from the code.
func retentionPoints(t *testing.T) (points []string) {
	t.Helper()
	for dir, want := range map[string]string{".": `supervisor\.(?:snapshot|retain)\.\w+`, "../internal/journal": `journal\.trim\.\w+`, "../internal/blob": `blob\.swept`} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		hit := regexp.MustCompile(`failpoint\.Hit\("(` + want + `)"\)`)
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range hit.FindAllStringSubmatch(string(b), -1) {
				points = append(points, m[1])
			}
		}
	}
	slices.Sort(points)
	points = slices.Compact(points)
	// What we trim is signed before: see declare.
	points = slices.DeleteFunc(points, func(p string) bool { return p == "journal.trim.signed" })
	if len(points) < 12 {
		t.Fatalf("points: %v", points)
	}
	return points
}

// A supervisor that is killed on the way from one policy to the next decides by one of the two when it is there again, whole:
// by the next, which is there to be read. What was opened before is judged as before.
func TestPolicyFailpoints(t *testing.T) {
	if state := os.Getenv("POLICY_STORY_STATE"); state != "" {
		s := &shelf{}
		s.put(1, nil)
		b := startOn(t, newFake(), state, func(c *Config) { c.Policies = s.policies() })
		fmt.Println("before", b.status().Active.Digest)
		s.put(2, secondExec())
		b.activate(api.PolicyActivate{Strict: os.Getenv("POLICY_STORY_STRICT") != ""})
		fmt.Println("activated")
		return
	}
	for _, strict := range []string{"", "yes"} {
		for _, point := range []string{"supervisor.policy.kept", "supervisor.policy.remembered", "supervisor.policy.recorded"} {
			t.Run(point+strict, func(t *testing.T) {
				state := t.TempDir() + "/state"
				nth := 2 // the first is that of the start
				if point == "supervisor.policy.recorded" {
					nth = 1
				}
				child := exec.Command(os.Args[0], "-test.run=^TestPolicyFailpoints$")
				child.Env = append(os.Environ(), "POLICY_STORY_STATE="+state, "POLICY_STORY_STRICT="+strict, fmt.Sprintf("STOCKADE_FAILPOINT=%s:%d", point, nth))
				out, err := child.Output()
				if failed, ok := errors.AsType[*exec.ExitError](err); !ok || failed.Exited() || strings.Contains(string(out), "activated") {
					t.Fatalf("%v: %s", err, out)
				}
				_, before, _ := strings.Cut(string(out), "before ")
				before, _, _ = strings.Cut(before, "\n")

				// With the candidate in its place, it decides; with none that is any good, what was active.
				s := &shelf{}
				s.put(2, map[string]string{"x.rego": "package {"})
				b := startOn(t, newFake(), state, func(c *Config) { c.Policies = s.policies() })
				st := b.status()
				if want := point == "supervisor.policy.kept"; (st.Active.Digest == before) != want || st.Refused == nil {
					t.Errorf("without the candidate: %+v", st)
				}
				s.put(2, secondExec())
				if r := b.activate(api.PolicyActivate{}); r.Outcome != api.OutcomeOK || b.status().Active.Number != 2 {
					t.Errorf("%+v %+v", r, r.Payload.Policy)
				}
				// What is older has lost, wherever it was killed.
				s.put(1, nil)
				if r := b.activate(api.PolicyActivate{}); r.ErrorCode != api.CodePolicyRollback {
					t.Errorf("%+v", r)
				}
				b.stop()
				if r, err := Fsck(state, FsckOptions{Deep: true}); err != nil || !r.OK {
					t.Errorf("%+v %v", r, err)
				}
			})
		}
	}
}
