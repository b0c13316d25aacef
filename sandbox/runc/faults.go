//go:build faults

package runc

import (
	"fmt"
	"os"
)

// A runner built with the tag "faults" fails after the step of Open that STOCKADE_FAULT
// names, for tests of what surrounds it. The released one has no such code.
func init() {
	fault = func(step string) error {
		if step == os.Getenv("STOCKADE_FAULT") {
			return fmt.Errorf("injected fault after %s", step)
		}
		return nil
	}
}
