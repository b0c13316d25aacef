package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stockade-dev/stockade/internal/testbox"
)

// TestTour runs the commands of README.md's tour as they stand there, in another
// directory and without building again.
func TestTour(t *testing.T) {
	needRoot(t)
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, tour, found := strings.Cut(string(readme), "\n## Five minutes\n")
	if !found {
		t.Fatal("README.md has no tour")
	}
	tour, _, _ = strings.Cut(tour, "\n## ")
	// A place of its own, with a short name for the socket.
	dir, err := os.MkdirTemp("", "tour-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	place := filepath.Join(dir, "sk")
	script := strings.NewReplacer("/tmp/sk", place, "make build && export PATH=$PWD/build/bin:$PATH", "export PATH="+bin+":$PATH").Replace(commands(tour))

	cmd := exec.Command("bash", "-m", "-x", "-c", script+"\nwait\n")
	out, err := cmd.CombinedOutput()
	text := string(out)
	for _, want := range []string{
		"LAYER", "\n7\n", " made\n", // ls -l ws
		"\nM made\nA more\n", "\nhi\n", "committed 1\n", "\nbye\n",
		"\n120\n", "mount_host_path_not_allowed", "would help",
		"\n7\n", "\n124\n", "the execution's memory ceiling was reached", "refused: seccomp", "closed: 4 execution",
		"failed (5)", "\n5\n", "Z got two\n", "SESSION_STATE",
		"outputs are the same in two runs", "signed by", "under a signed checkpoint: receipt", "passed, 0 failed",
		"destination_not_allowed",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the tour shows no %q", want)
		}
	}
	for _, unwanted := range []string{"command not found", "\nError"} {
		if strings.Contains(text, unwanted) {
			t.Errorf("the tour shows %q", unwanted)
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

// patient is what a reader's second is to a supervisor on a busy machine.
var patient = regexp.MustCompile(`& sleep [0-9]+`)

// commands are the indented lines.
func commands(section string) string {
	var out strings.Builder
	for line := range strings.Lines(section) {
		if code, ok := strings.CutPrefix(line, "    "); ok {
			out.WriteString(patient.ReplaceAllString(code, "& for i in $(seq 300); do [ -S $$STOCKADE_SOCKET ] && break; sleep 0.1; done"))
		}
	}
	return out.String()
}
