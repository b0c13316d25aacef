package runc

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stockade-dev/stockade/sandbox"
)

// TestDigest gives equal trees one digest, whoever owns them and whenever they were
// made, and any other tree another (R201).
func TestDigest(t *testing.T) {
	needRoot(t)
	dir := sharedDir(t)
	judged := func(path string) sandbox.Source {
		f, src, err := lookUp(path)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		return src
	}
	tree := func(name string, change func(root string)) sandbox.Source {
		root := mkdir(t, filepath.Join(dir, name), 0o755, 1001)
		write(t, filepath.Join(root, "a"), "alpha", 0o644, 1001)
		mkdir(t, filepath.Join(root, "sub"), 0o755, 1001)
		write(t, filepath.Join(root, "sub/b"), "beta", 0o755, 1001)
		if err := os.Symlink("sub/b", filepath.Join(root, "link")); err != nil {
			t.Fatal(err)
		}
		change(root)
		return judged(root)
	}
	digest := func(src sandbox.Source, caller sandbox.Caller) sandbox.TreeDigest {
		t.Helper()
		d, err := digestTree(context.Background(), caller, src)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	caller := sandbox.Caller{UID: 1001, GID: 1001}
	base := digest(tree("base", func(string) {}), caller)
	if base.Files != 2 || base.Bytes != 9 || len(base.Digest) != len("sha256:")+64 {
		t.Errorf("%+v", base)
	}
	same := digest(tree("same", func(root string) { os.Chown(filepath.Join(root, "a"), 7, 7) }), sandbox.Caller{})
	if same.Digest != base.Digest {
		t.Errorf("equal trees: %s and %s", same.Digest, base.Digest)
	}
	for name, change := range map[string]func(string){
		"content":    func(r string) { write(t, filepath.Join(r, "a"), "alphA", 0o644, 1001) },
		"mode":       func(r string) { os.Chmod(filepath.Join(r, "a"), 0o755) },
		"name":       func(r string) { os.Rename(filepath.Join(r, "a"), filepath.Join(r, "c")) },
		"more":       func(r string) { write(t, filepath.Join(r, "c"), "", 0o644, 1001) },
		"directory":  func(r string) { mkdir(t, filepath.Join(r, "empty"), 0o755, 1001) },
		"link":       func(r string) { os.Remove(filepath.Join(r, "link")); os.Symlink("a", filepath.Join(r, "link")) },
		"unreadable": func(r string) { write(t, filepath.Join(r, "a"), "alpha", 0o600, 7) },
	} {
		if got := digest(tree(name, change), caller); got.Digest == base.Digest {
			t.Errorf("%s: the digest is the same", name)
		}
	}
	file := digest(judged(filepath.Join(dir, "base/a")), caller)
	if file.Files != 1 || file.Bytes != 5 {
		t.Errorf("a file: %+v", file)
	}
}
