package launch

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stockade-dev/stockade/sandbox"
)

// bytesInside is what a name can have that was chosen inside.
const bytesInside = "\n\x1b[2J\xff\xc0"

// The fake's overlays hold the numbers from 0 to 9; what it is asked with comes back in its answers.

func (f *fake) Changes(_ context.Context, session, target, after string, limit int) ([]sandbox.Change, bool, error) {
	f.look(kindChanges, session)
	if session == "none" {
		return nil, false, sandbox.Errorf(sandbox.CodeNoOverlay, "%s of %s", target, session)
	}
	var out []sandbox.Change
	for i := range 10 {
		name := fmt.Sprint(i)
		if name <= after {
			continue
		}
		if len(out) == limit {
			return out, true, nil
		}
		if i == 9 {
			name += bytesInside
		}
		out = append(out, sandbox.Change{Path: name, Kind: "added", Type: "symlink", Mode: 0o777, Size: 1 << 40, Link: session + target + bytesInside})
	}
	return out, false, nil
}

func (f *fake) Commit(_ context.Context, session, target string, paths []string) (sandbox.Committed, error) {
	f.look(kindCommit, session)
	done := sandbox.Committed{Applied: int64(len(paths)), Left: paths}
	switch session {
	case "conflict":
		return done, fmt.Errorf("commit %s: %w", target, sandbox.Errorf(sandbox.CodeConflict, "\xff is a directory now"))
	case "broken":
		return done, errors.New("input/output error")
	}
	return done, nil
}

func (f *fake) Discard(_ context.Context, session, target string) error {
	f.look(kindDiscard, session)
	if session == "none" {
		return sandbox.Errorf(sandbox.CodeNoOverlay, "%s of %s", target, session)
	}
	return nil
}

func (f *fake) Narrow(_ context.Context, session string, n sandbox.Network) (int64, error) {
	if session == "none" {
		return 0, sandbox.Errorf(sandbox.CodeNetwork, "mode %s", n.Mode)
	}
	return int64(len(n.Allow)), nil
}

func TestWorkspaceCalls(t *testing.T) {
	r, _ := connect(t)
	ctx := t.Context()
	first, more, err := r.Changes(ctx, "s", "/work", "", 4)
	if err != nil || !more || len(first) != 4 {
		t.Fatalf("%+v, %v, %v", first, more, err)
	}
	want := sandbox.Change{Path: "3", Kind: "added", Type: "symlink", Mode: 0o777, Size: 1 << 40, Link: "s/work" + bytesInside}
	if diff := cmp.Diff(want, first[3]); diff != "" {
		t.Error(diff)
	}
	rest, more, err := r.Changes(ctx, "s", "/work", first[3].Path, 100)
	if err != nil || more || len(rest) != 6 || rest[0].Path != "4" || rest[5].Path != "9"+bytesInside {
		t.Errorf("%+v, %v, %v", rest, more, err)
	}
	if none, more, err := r.Changes(ctx, "s", "/work", rest[5].Path, 100); err != nil || more || len(none) != 0 {
		t.Errorf("%+v, %v, %v", none, more, err)
	}
	if _, _, err := r.Changes(ctx, "none", "/work", "", 1); code(err) != sandbox.CodeNoOverlay {
		t.Error(err)
	}
	if err := r.Discard(ctx, "s", "/work"); err != nil {
		t.Error(err)
	}
	if err := r.Discard(ctx, "none", "/work"); code(err) != sandbox.CodeNoOverlay {
		t.Error(err)
	}
}

// A commit that fails says how far it came all the same: what the source has cannot be guessed.
func TestCommitTellsHowFar(t *testing.T) {
	r, _ := connect(t)
	for session, want := range map[string]string{"s": "", "conflict": sandbox.CodeConflict, "broken": sandbox.CodeInternal} {
		done, err := r.Commit(t.Context(), session, "/work", []string{"a", "b" + bytesInside})
		if code(err) != want || (err == nil) != (want == "") {
			t.Errorf("%s: %v", session, err)
		}
		if diff := cmp.Diff(sandbox.Committed{Applied: 2, Left: []string{"a", "b" + bytesInside}}, done); diff != "" {
			t.Errorf("%s: %s", session, diff)
		}
	}
}

func TestNarrow(t *testing.T) {
	r, _ := connect(t)
	n := sandbox.Network{Mode: "egress", Allow: []sandbox.Destination{{Name: "example.org", Ports: []uint16{443}}, {CIDR: "192.0.2.0/24"}}}
	if cut, err := r.Narrow(t.Context(), "s", n); err != nil || cut != 2 {
		t.Errorf("%d, %v", cut, err)
	}
	if _, err := r.Narrow(t.Context(), "none", sandbox.Network{Mode: "none"}); code(err) != sandbox.CodeNetwork {
		t.Error(err)
	}
}
