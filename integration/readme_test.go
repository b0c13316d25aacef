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

// TestReadme runs the commands of README.md as they stand there, in another directory and without building again.
func TestReadme(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		skip(t, "python3 is not installed: scripts/setup tests would do it")
	}
	client, err := filepath.Abs("../clients/python")
	if err != nil {
		t.Fatal(err)
	}
	text := guide(t, "../README.md", "Five minutes", "make build && export PATH=$PWD/build/bin:$PATH PYTHONPATH=$PWD/clients/python\n",
		"export PYTHONPATH="+client+" PYTHONDONTWRITEBYTECODE=1\n")
	inOrder(t, text,
		" passed, 0 failed", "\n1000\n", "\n7\n", " made\n",
		"denied: mount_host_path_not_allowed mount:/etc/skel", "rule: open/mounts.rego", `host_paths.public: add "/etc/skel/"`,
		" passed, 0 failed", ".bashrc", "signed by",
	)
}

// TestCommands runs the walk of docs/commands.md likewise.
func TestCommands(t *testing.T) {
	t.Parallel()
	text := guide(t, "../docs/commands.md", "A walk", "make build && export PATH=$PWD/build/bin:$PATH\n", "")
	for _, want := range []string{
		"LAYER", "\n7\n", " made\n", // ls -l ws
		"\nM made\nA more\n", "\nhi\n", "committed 1\n", "\nbye\n",
		"\n120\n", "mount_host_path_not_allowed", "would help",
		"\n7\n", "\n124\n", "the execution's memory ceiling was reached", "refused: seccomp", "closed: 4 execution",
		"OUT/s  REFUSED  COMMAND\n", "failed (5)", "\n5\n", "Z got two\n", "SESSION_STATE",
		"outputs are the same in two runs", "signed by", "under a signed checkpoint: receipt", "passed, 0 failed",
		"destination_not_allowed",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the walk shows no %q", want)
		}
	}
}

// inOrder checks that the output of a guide has all that is wanted, in this order.
func inOrder(t *testing.T, text string, wanted ...string) {
	t.Helper()
	for _, want := range wanted {
		_, after, found := strings.Cut(text, want)
		if !found {
			t.Errorf("the guide shows no %q after what came before it", want)
			continue
		}
		text = after
	}
}

// guide runs the commands of a section of a document as they stand there, but for those that are replaced, in a place of its
// own, and returns what they print. None of them fails, is unknown, or leaves anything behind.
func guide(t *testing.T, document, heading string, replaced ...string) string {
	t.Helper()
	needRoot(t)
	data, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(data), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("%s has no %q", document, heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	dir, err := os.MkdirTemp("", "guide-") // a short name, for the socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	place := filepath.Join(dir, "sk")
	script := strings.NewReplacer(append(replaced, "/tmp/sk", place)...).Replace(commands(section))

	out, failed := exec.Command("bash", "-m", "-x", "-c", "export PATH="+bin+":$PATH\n"+script+"\nwait\n").CombinedOutput()
	text := string(out)
	for _, unwanted := range []string{"command not found", "\nError"} {
		if strings.Contains(text, unwanted) {
			t.Errorf("%s shows %q", document, unwanted)
		}
	}
	t.Cleanup(func() {
		if failed != nil || t.Failed() {
			t.Errorf("%v\n%s", failed, text)
		}
	})
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
	return text
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

// TestCI runs docs/ci.md: a hermetic build cold and warm, the same bytes, and what is verified elsewhere by the public key alone.
func TestCI(t *testing.T) {
	text := guide(t, "../docs/ci.md", "A build")
	inOrder(t, text, "pears: 3\n", "apples: 7\n", "\nexit 127\n", "under a signed checkpoint: receipt", "\nthe artifact is the one that was built\n", "\nthis one is not\n")
}
