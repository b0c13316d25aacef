package host

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// T037: what a newer kernel is not asked for is tried as well, where it can be: older kernels have the one way only.
func TestOverlayByPath(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("STOCKADE_NOSKIP") == "1" {
			t.Fatal("needs root")
		}
		t.Skip("needs root")
	}
	if err := layered(byPath); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat("/proc/self"); err != nil {
		t.Errorf("/proc is covered here, too: %v", err)
	}
}

// The unit gives the runner what its steps need, and CAP_SYS_RESOURCE, which it can do without.
func TestUnitCapabilities(t *testing.T) {
	unit, err := os.ReadFile("../../packaging/systemd/stockade-run.service")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(unit), "\nCapabilityBoundingSet=")
	line, _, _ := strings.Cut(rest, "\n")
	want := []string{"CAP_SYS_RESOURCE"}
	for _, c := range needed {
		want = append(want, c.name)
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(strings.Fields(line)))); diff != "" {
		t.Error(diff)
	}
}
