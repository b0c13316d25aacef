package host

import (
	"os"
	"testing"
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
