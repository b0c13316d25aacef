//go:build faults

package runc

import (
	"fmt"
	"os"
	"slices"
)

// A runner built with the tag "faults" fails at the step of Open that STOCKADE_FAULT
// names, for tests of what surrounds it. The released one has no such code.
func init() {
	step := os.Getenv("STOCKADE_FAULT")
	if step != "" && !slices.Contains(steps, step) {
		panic(fmt.Sprintf("STOCKADE_FAULT=%s: none of %q", step, steps))
	}
	fault = func(s string) error {
		if s == step {
			return fmt.Errorf("injected fault at %s", s)
		}
		return nil
	}
}
