package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stockade-dev/stockade/internal/testbox"
)

// TestAuthorsGuide (R111) runs the commands of policies/README.md as they stand there: from nothing to a policy of one's own
// that is tested, signed, active, and replaced without a restart.
func TestAuthorsGuide(t *testing.T) {
	needRoot(t)
	guide, err := os.ReadFile("../policies/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(guide), "\n## Ten minutes\n")
	if !found {
		t.Fatal("policies/README.md has no guide")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	dir, err := os.MkdirTemp("", "guide-") // a short name, for the socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	place := filepath.Join(dir, "sk")
	script := "export PATH=" + bin + ":$PATH\n" + strings.ReplaceAll(commands(section), "/tmp/sk", place)

	cmd := exec.Command("bash", "-m", "-x", "-c", script+"\nwait\n")
	out, err := cmd.CombinedOutput()
	text := string(out)
	at := 0
	for _, want := range []string{ // in this order
		" modules, ", " passed, 0 failed", " modules, ",
		`netwroks is not known in "cap"`, "exit 1",
		" passed, 0 failed",
		"allowed by sha256:", `"memory_bytes":268435456`,
		"denied by sha256:", "network_mode_not_allowed", "profile workspace grants none", "exit 1",
		"release.key and release.pub", "policy.tar.gz: revision 1", "active",
		"\nallowed\n", "ours.ssh", "exit 120",
		"test_ssh_goes_by_other_names", "exit 1", " passed, 0 failed",
		"policy.tar.gz: revision 2", "ours.ssh", "exit 120", "active  2",
		"exec/ssh.rego:",
	} {
		i := strings.Index(text[at:], want)
		if i < 0 {
			t.Errorf("the guide shows no %q after what came before it", want)
			continue
		}
		at += i + len(want)
	}
	for _, unwanted := range []string{"command not found", "\nError", "No such file"} {
		if strings.Contains(text, unwanted) {
			t.Errorf("the guide shows %q", unwanted)
		}
	}
	if err != nil || t.Failed() {
		t.Errorf("%v\n%s", err, text)
	}
	d := testbox.Daemon{Bin: bin, Dir: place, State: filepath.Join(place, "state")}
	if err := os.RemoveAll(place); err != nil {
		t.Error(err)
	}
	left, err := d.Left()
	for _, line := range left {
		t.Errorf("left behind: %s", line)
	}
	if err != nil {
		t.Error(err)
	}
}
