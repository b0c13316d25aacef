package workspace

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/thread"
	"github.com/stockade-dev/stockade/sandbox"
)

// T017: a mount that lies in another one is moved away inside, with the directory that leads to it, and a directory is put in its place. Guards are
// not renewed there, where they would keep nothing, and nothing is started that believes so.
func TestRenewMoved(t *testing.T) {
	dir, outer := sourceDir(t, project), sourceDir(t, map[string]string{"sub/mount/": ""})
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	protection := Protection{Paths: []string{".git/hooks"}, Owner: owner, Place: mnt, Reserve: &Reservation{
		Placeholders: placeholders(t, filepath.Join(t.TempDir(), "placeholders")), Session: "s", Caller: owner.caller(),
		Source: sandbox.Source{Path: dir, Dev: st.Dev, Ino: st.Ino},
	}}
	session(t, detached(t, outer, false), func(ns *os.File) {
		var root *os.File
		if err := thread.Enter(ns, func() error { root = openDir(t, "/"); return nil }); err != nil {
			t.Fatal(err)
		}
		if err := protection.Renew(root, ns, mnt+"/sub/mount"); codeOf(err) != sandbox.CodeProtected {
			t.Errorf("in another directory: %v", err)
		}
	})
	if names, err := os.ReadDir(filepath.Join(outer, "sub/mount")); err != nil || len(names) > 0 {
		t.Errorf("made in another directory: %v %v", names, err)
	}
}
