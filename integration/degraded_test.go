package integration

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// landlockABI asks the kernel itself; 0 is no Landlock.
var landlockABI = sync.OnceValue(func() int {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(abi)
})

// degraded are the layers that sessions have to do without on this kernel.
func degraded() []string {
	if landlockABI() == 0 {
		return []string{sandbox.LayerLandlock}
	}
	return nil
}

// T037 R259: what this kernel lacks is said before anything is asked for, is a refusal to whoever
// says nothing, and is done without by whoever accepts it and may; the receipt names it. Without Landlock only
// the machines of scripts/test-v2 show that. Where nothing lacks, whoever accepts less gets everything.
func TestDegraded(t *testing.T) {
	c := start(t).Client()
	lacks := degraded()
	told, err := c.Capabilities(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(told.Degraded, lacks) || !slices.Equal(told.Missing, lacks) || told.Sessions != (len(lacks) == 0) {
		t.Errorf("capabilities: sessions %v, missing %q, degraded %q, want %q", told.Sessions, told.Missing, told.Degraded, lacks)
	}
	for _, tt := range []struct {
		profile string
		accept  []string
		opens   bool
	}{
		{"workspace", nil, len(lacks) == 0},
		{"workspace", []string{sandbox.LayerTimeNS}, len(lacks) == 0}, // another
		{"hermetic", nil, len(lacks) == 0},
		{"workspace", sandbox.Degradable, true},
	} {
		r, err := c.Open(t.Context(), api.SessionOpen{Profile: tt.profile, Target: rooted(tt.profile), Degraded: tt.accept})
		if err != nil {
			t.Fatal(err)
		}
		if !tt.opens {
			if r.Outcome != api.OutcomeFaulted || r.ErrorCode != api.CodeUnsupportedByHost || !strings.Contains(r.ErrorMessage, lacks[0]) {
				t.Errorf("%s, accepting %q: %s %s %q", tt.profile, tt.accept, r.Outcome, r.ErrorCode, r.ErrorMessage)
			}
			continue
		}
		held := settled(t, r, nil).Payload.Open.Enforced
		if !slices.Equal(held.Degraded, lacks) || held.Landlock > landlockABI() || (held.Landlock == 0) != (landlockABI() == 0) {
			t.Errorf("%s, accepting %q: degraded %q, Landlock %d of the kernel's %d", tt.profile, tt.accept, held.Degraded, held.Landlock, landlockABI())
		}
		x, err := c.Exec(t.Context(), api.Exec{SessionID: r.SessionID, Argv: []string{"echo", "held"}})
		if got := printed(settled(t, x, err)); got != "held" {
			t.Errorf("%s, accepting %q: %s", tt.profile, tt.accept, got)
		}
	}
	// Policy has a say as well: this profile lets nobody do without anything.
	r, err := c.Open(t.Context(), api.SessionOpen{Profile: "hermetic", Target: rooted("hermetic"), Degraded: []string{sandbox.LayerLandlock}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Outcome != api.OutcomeDenied || len(r.Deny) != 1 || r.Deny[0].Code != api.CodeDegradedNotAllowed {
		t.Errorf("hermetic: %s %v", r.Outcome, r.Deny)
	}
}

// rooted is a target that a profile opens: a hermetic one says all that it sees.
func rooted(profile string) api.Target {
	local := new(api.Local)
	if profile == "hermetic" {
		local.Root.Paths = &api.RootPaths{Paths: []string{"/bin/echo", "/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libc.so.6"}}
	}
	return api.Target{Local: local}
}
