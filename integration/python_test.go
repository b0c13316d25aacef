package integration

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestPython runs the suite of the client for Python, which starts supervisors of its own: methods, guides and the golden contract,
// what is done when answers get lost, and an agent whose supervisor is killed three times. As a soak that agent makes a thousand calls.
func TestPython(t *testing.T) {
	needRoot(t)
	t.Parallel() // its supervisors are its own
	python, err := exec.LookPath("python3")
	if err != nil {
		skip(t, "python3 is not installed: scripts/setup tests would do it")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-W", "error", "-B", "-m", "tests")
	cmd.Dir = filepath.FromSlash("../clients/python")
	cmd.Env = append(os.Environ(), "STOCKADE_BIN="+bin)
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	ran := regexp.MustCompile(`(?m)^ran (\d+), skipped (\d+)$`).FindStringSubmatch(string(out))
	switch {
	case err != nil || ran == nil:
		t.Errorf("%v\n%s", err, out)
	case ran[2] != "0":
		t.Errorf("%s of the suite were skipped:\n%s", ran[2], out)
	case !strings.Contains(string(out), "test_an_agent "):
		t.Errorf("no agent was there:\n%s", out)
	default:
		t.Log("ran ", ran[1])
	}
}
