package filetool

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox/file"
)

// T134, T135: a file system that is really full, and one that is read-only.
func TestFullAndReadOnlyFileSystems(t *testing.T) {
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=256k"); err != nil {
		t.Skip("no file system can be mounted here: ", err)
	}
	t.Cleanup(func() { unix.Unmount(root, unix.MNT_DETACH) })
	b := newBoxIn(t, dir, file.Caps{})
	b.fill(map[string]string{"f": "old\n" + strings.Repeat("x\n", 40_000), "g": "old\n", "h": "gone\n"})
	before := b.state()
	big := strings.Repeat("y\n", 120_000)
	patch := "*** Begin Patch\n*** Delete File: h\n*** Update File: g\n@@\n-old\n+new\n*** Add File: big\n+" + strings.TrimSuffix(strings.ReplaceAll(big, "\n", "\n+"), "+") + "*** End Patch\n"
	changes := map[string]func() file.Outcome{
		"write": func() file.Outcome { return b.writeFile(file.Write{Target: at("f"), Content: text(big)}).Outcome },
		"create": func() file.Outcome {
			return b.writeFile(file.Write{Target: at("p/q"), Content: text(big), CreateParents: true}).Outcome
		},
		"edit": func() file.Outcome {
			return b.editFile(file.Edit{Target: at("f"), OldString: "old", NewString: big}).Outcome
		},
		"patch": func() file.Outcome { return b.applyPatch(patch).Outcome },
	}
	for name, change := range changes {
		want(t, name+", full", change(), file.Error, file.CodeNoSpace)
		if d := difference(b.state(), before); d != "" {
			t.Errorf("%s, full:\n%.500s", name, d)
		}
	}
	if err := unix.Mount("", root, "", unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		t.Fatal(err)
	}
	for name, change := range changes {
		want(t, name+", read-only", change(), file.Forbidden, file.CodeReadOnly)
	}
	want(t, "remove, read-only", b.do(file.Request{Op: file.OpRemove, Remove: &file.Remove{Target: at("g")}}).Change.Outcome, file.Forbidden, file.CodeReadOnly)
	want(t, "mkdir, read-only", b.do(file.Request{Op: file.OpMkdir, Mkdir: &file.Mkdir{Target: at("m")}}).Change.Outcome, file.Forbidden, file.CodeReadOnly)
	want(t, "read, read-only", b.readFile(file.Read{Target: at("g")}).Outcome, file.OK, "")
}
