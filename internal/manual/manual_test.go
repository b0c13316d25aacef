package manual

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Every command that help shows has a page with what help says, and what Markdown would swallow is there as it was written.
func TestWrite(t *testing.T) {
	run := func(*cobra.Command, []string) {}
	root := &cobra.Command{Use: "fort", Short: "Keep", Run: run}
	sub := &cobra.Command{
		Use: "gate NAME", Short: "Open the gate of *NAME*", Run: run,
		Long:    "gate opens NAME_OF_A_GATE and <others>.\nStatus:\n  0  open\n  1  closed\nNothing else.",
		Example: "  fort gate south",
	}
	sub.Flags().String("to", "", "who may pass: a_b_c")
	root.AddCommand(sub, &cobra.Command{Use: "secret", Hidden: true, Run: run})
	t.Setenv("SOURCE_DATE_EPOCH", "86400")
	dir := filepath.Join(t.TempDir(), "man")
	if err := Write(root, "8", dir); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	if want := []string{"fort-gate.8", "fort.8"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	text, err := os.ReadFile(filepath.Join(dir, "fort-gate.8"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`.TH "FORT-GATE" "8" "Jan 1970"`, "Open the gate of *NAME*", "NAME_OF_A_GATE and <others>", "\n  0  open\n  1  closed\n", "who may pass: a_b_c", "fort gate south"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
