package patch

import (
	"os"
	"os/exec"
	"path/filepath"

	"pgregory.net/rapid"
)

// gitDiff has git compare two texts.
func gitDiff(t *rapid.T, old, fresh string) string {
	dir, err := os.MkdirTemp("", "patch-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for name, text := range map[string]string{"a": old, "b": fresh} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("git", "diff", "--no-index", "--no-color", "--text", "-U2", "a", "b")
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1"}
	out, _ := cmd.Output() // 1 is a difference
	return string(out)
}
