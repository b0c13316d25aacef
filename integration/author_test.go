package integration

import (
	"strings"
	"testing"
)

// TestAuthorsGuide (R111) runs the commands of policies/README.md as they stand there: from nothing to a policy of one's own
// that is tested, signed, active, and replaced without a restart.
func TestAuthorsGuide(t *testing.T) {
	t.Parallel()
	text := guide(t, "../policies/README.md", "Ten minutes")
	inOrder(t, text,
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
	)
	if strings.Contains(text, "No such file") {
		t.Error("the guide names what is not there")
	}
}
