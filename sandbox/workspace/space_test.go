package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/thread"
	"github.com/stockade-dev/stockade/sandbox"
)

// sample is what the tests begin with.
var sample = map[string]string{
	"file": "old", "gone": "x", "same": "s", "link": "->file", "dir/a": "a", "dir/b": "b", "dir/sub/c": "c", "tree/x/y": "y", "to-dir": "f", "to-file/in": "i",
}

// change is a bit of everything that can be done to it.
func change(at func(string) string) error {
	touched, err := os.OpenFile(at("same"), os.O_RDWR, 0) // copies it up, and changes nothing
	return must(err, touched.Close(),
		os.WriteFile(at("file"), []byte("new"), 0),
		os.Remove(at("gone")),
		os.Remove(at("link")), os.Symlink("/etc/passwd", at("link")),
		os.RemoveAll(at("dir")), os.Mkdir(at("dir"), 0o700), os.WriteFile(at("dir/b"), []byte("b2"), 0o640), // replaced: opaque
		os.RemoveAll(at("tree")),
		os.Remove(at("to-dir")), os.MkdirAll(at("to-dir/deep"), 0o755), os.WriteFile(at("to-dir/deep/f"), nil, 0o600),
		os.RemoveAll(at("to-file")), os.WriteFile(at("to-file"), []byte("t"), 0o644),
		os.Mkdir(at("made"), 0o755), os.WriteFile(at("made/run"), []byte("#!"), 0o755), unix.Mkfifo(at("made/pipe"), 0o600),
		os.WriteFile(at("made/new\nline"), nil, 0o644), os.WriteFile(at("made/\xff"), []byte("\xff"), 0o644),
	)
}

var changed = []string{
	"modified dir dir", "deleted file dir/a", "modified file dir/b", "deleted dir dir/sub",
	"modified file file", "deleted file gone", "modified symlink link -> /etc/passwd",
	"added dir made", "added file made/new\nline", "added fifo made/pipe", "added file made/run", "added file made/\xff",
	"modified dir to-dir", "added dir to-dir/deep", "added file to-dir/deep/f", "modified file to-file", "deleted dir tree",
}

var committed = []string{
	"dir/", "dir/b = b2", "file = new", "link -> /etc/passwd", "made/", "made/new\nline = ", "made/pipe p---------", "made/run = #!", "made/\xff = \xff",
	"same = s", "to-dir/", "to-dir/deep/", "to-dir/deep/f = ", "to-file = t",
}

// A session writes; the host sees nothing before the commit, and then all of it, as the caller's.
func TestOverlay(t *testing.T) {
	everyWay(t, func(t *testing.T) {
		dir := sourceDir(t, sample)
		b := newBox(t, dir, nil)
		before := content(t, dir)
		b.act(t, change)
		equal(t, "the host's directory", content(t, dir), before)
		equal(t, "changes", b.changes(t), changed)

		// Pages of any size are the same list.
		for _, size := range []int{1, 2, 5} {
			var all []sandbox.Change
			for after, more := "", true; more; {
				var page []sandbox.Change
				var err error
				if page, more, err = b.Changes(context.Background(), after, size); err != nil || len(page) == 0 {
					t.Fatal(page, err)
				}
				all, after = append(all, page...), page[len(page)-1].Path
			}
			equal(t, fmt.Sprintf("pages of %d", size), told(all), changed)
		}

		c := b.commit(t)
		if c.Applied != int64(len(changed)) || c.Left != nil {
			t.Errorf("committed %+v, of %d changes", c, len(changed))
		}
		equal(t, "committed", content(t, dir), committed)
		equal(t, "changes after the commit", b.changes(t), nil)
		for name, mode := range map[string]os.FileMode{"dir": os.ModeDir | 0o700, "dir/b": 0o640, "made/run": 0o755, "made/pipe": os.ModeNamedPipe | 0o600} {
			st, err := os.Lstat(filepath.Join(dir, name))
			if err != nil || st.Mode() != mode {
				t.Errorf("%s: %v %v, not %v", name, st.Mode(), err, mode)
			}
		}
		// And again: what we changed ourselves is no conflict.
		b.act(t, func(at func(string) string) error { return os.WriteFile(at("file"), []byte("newer"), 0) })
		if c := b.commit(t); c.Applied != 1 {
			t.Errorf("committed %+v", c)
		}
	})
}

// What is asked for by path is committed, and nothing else; what did not change is said.
func TestCommitPaths(t *testing.T) {
	dir := sourceDir(t, sample)
	b := newBox(t, dir, nil)
	b.act(t, change)
	c := b.commit(t, "made/run", "dir/sub", "same", "../x", "tree/x", "to-dir/")
	equal(t, "left", c.Left, []string{"same", "../x", "tree/x"})
	equal(t, "committed", content(t, dir), []string{
		"dir/", "dir/a = a", "dir/b = b", "file = old", "gone = x", "link -> file", "made/", "made/run = #!", "same = s",
		"to-dir/", "to-dir/deep/", "to-dir/deep/f = ", "to-file/", "to-file/in = i", "tree/", "tree/x/", "tree/x/y = y",
	})
}

// The host changed something that is to be written over, or is in the way; or the caller may not.
func TestConflict(t *testing.T) {
	for _, c := range []struct {
		name    string
		inside  func(at func(string) string) error
		outside func(at func(string) string) error
		intact  string // in the host's directory afterwards
	}{
		{"a file changed", func(at func(string) string) error { return os.WriteFile(at("file"), nil, 0) },
			func(at func(string) string) error { return os.WriteFile(at("file"), []byte("host"), 0) }, "file = host"},
		{"a deleted file changed", func(at func(string) string) error { return os.Remove(at("file")) },
			func(at func(string) string) error { return os.WriteFile(at("file"), []byte("host"), 0) }, "file = host"},
		{"the same name came", func(at func(string) string) error { return os.WriteFile(at("new"), []byte("in"), 0o644) },
			func(at func(string) string) error { return os.WriteFile(at("new"), []byte("host"), 0o644) }, "new = host"},
		{"a deleted directory got something", func(at func(string) string) error { return os.RemoveAll(at("dir")) },
			func(at func(string) string) error { return os.WriteFile(at("dir/sub/host"), []byte("h"), 0o644) }, "dir/sub/host = h"},
		{"a parent is a symbolic link", func(at func(string) string) error { return os.WriteFile(at("dir/a"), nil, 0) },
			func(at func(string) string) error {
				return must(os.Rename(at("dir"), at("elsewhere")), os.Symlink("elsewhere", at("dir")))
			}, "elsewhere/a = a"},
		{"a directory became a file", func(at func(string) string) error { return os.WriteFile(at("dir/a"), nil, 0) },
			func(at func(string) string) error {
				return must(os.RemoveAll(at("dir")), os.WriteFile(at("dir"), []byte("f"), 0o644))
			}, "dir = f"},
		{"not the caller's to write", func(at func(string) string) error { return os.WriteFile(at("dir/a"), nil, 0) },
			func(at func(string) string) error { return os.Chown(at("dir"), 0, 0) }, "dir/a = a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := sourceDir(t, sample)
			b := newBox(t, dir, nil)
			b.act(t, c.inside)
			if err := c.outside(func(name string) string { return filepath.Join(dir, name) }); err != nil {
				t.Fatal(err)
			}
			before := content(t, dir)
			out, err := b.Commit(context.Background(), owner.caller(), b.source, nil, unnoted)
			if codeOf(err) != sandbox.CodeConflict || out.Applied != 0 {
				t.Errorf("%+v %v", out, err)
			}
			equal(t, "the host's directory", content(t, dir), before)
			if !slices.Contains(before, c.intact) {
				t.Errorf("%q is not in %q", c.intact, before)
			}
		})
	}
}

// T024 T025: a commit carries no bits over that give somebody rights, and nothing that is not a file. Nobody inside can write the marks
// that the kernel keeps in the upper layer.
func TestNothingCarried(t *testing.T) {
	dir := sourceDir(t, map[string]string{"tool": "x", "shared/in": "i"})
	if err := must(os.Chmod(filepath.Join(dir, "tool"), os.ModeSetuid|0o755), os.Chmod(filepath.Join(dir, "shared"), os.ModeSetgid|0o775)); err != nil {
		t.Fatal(err)
	}
	b := newBox(t, dir, nil)
	refused := map[string]error{}
	b.act(t, func(at func(string) string) error {
		fd, err := unix.Open(at("socket"), unix.O_PATH, 0)
		unix.Close(fd)
		refused["whiteout"] = unix.Mknod(at("tool.w"), unix.S_IFCHR, 0)
		refused["device"] = unix.Mknod(at("null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3)))
		refused["rename with whiteout"] = unix.Renameat2(unix.AT_FDCWD, at("tool"), unix.AT_FDCWD, at("tool2"), unix.RENAME_WHITEOUT)
		if !errors.Is(err, unix.ENOENT) {
			return err
		}
		return must(
			os.WriteFile(at("plain"), nil, 0o644), os.Chmod(at("plain"), os.ModeSetuid|os.ModeSetgid|os.ModeSticky|0o755),
			os.Mkdir(at("made"), 0o755), os.Chmod(at("made"), os.ModeSetgid|0o755),
			os.Chmod(at("shared"), 0o755), os.Chmod(at("tool"), os.ModeSetuid|0o711),
			unix.Mknod(at("sock"), unix.S_IFSOCK|0o600, 0),
		)
	})
	for what, err := range refused {
		if err == nil {
			t.Errorf("%s was made inside", what)
		}
	}
	equal(t, "changes", b.changes(t), []string{"added dir made", "added file plain", "modified dir shared", "modified file tool"})
	if c := b.commit(t, "made", "plain", "shared", "tool", "sock"); !slices.Equal(c.Left, []string{"sock"}) {
		t.Errorf("left %q", c.Left)
	}
	for name, mode := range map[string]os.FileMode{"plain": 0o755, "made": os.ModeDir | 0o755, "tool": 0o711, "shared": os.ModeDir | os.ModeSetgid | 0o755} {
		st, err := os.Lstat(filepath.Join(dir, name))
		if err != nil || st.Mode() != mode {
			t.Errorf("%s: %v %v, not %v", name, st.Mode(), err, mode)
		}
	}
}

// A sparse file costs the caller what it costs the session.
func TestSparse(t *testing.T) {
	dir := sourceDir(t, nil)
	b := newBox(t, dir, nil)
	b.act(t, func(at func(string) string) error {
		f, err := os.Create(at("sparse"))
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.WriteAt([]byte("end"), 1<<30)
		return must(err, f.Truncate(2<<30))
	})
	b.commit(t)
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "sparse"), &st); err != nil || st.Size != 2<<30 || st.Blocks > 256 {
		t.Errorf("size %d, %d blocks, %v", st.Size, st.Blocks, err)
	}
}

// T064 T065: an overlay is full inside, by bytes or by names, and says so. It can be emptied all the same.
func TestFull(t *testing.T) {
	everyWay(t, func(t *testing.T) {
		b := newBox(t, sourceDir(t, map[string]string{"big": strings.Repeat("x", 8<<20)}), func(o *Options) { o.Size = sandbox.Overlay{Bytes: 1 << 20, Inodes: 50} })
		if hits, err := b.Full(); err != nil || hits != nil {
			t.Errorf("an empty one: %+v %v", hits, err)
		}
		b.act(t, func(at func(string) string) error {
			if _, err := os.OpenFile(at("big"), os.O_RDWR, 0); !errors.Is(err, unix.ENOSPC) { // does not fit
				t.Errorf("copy up: %v", err)
			}
			if err := os.WriteFile(at("fill"), make([]byte, 2<<20), 0o644); !errors.Is(err, unix.ENOSPC) {
				t.Errorf("write: %v", err)
			}
			return nil
		})
		if hits, err := b.Full(); err != nil || len(hits) != 1 || hits[0] != (sandbox.Hit{Ceiling: sandbox.HitDiskBytes, Scope: "session", Object: "/work", Limit: 1 << 20, Peak: 1 << 20}) {
			t.Errorf("bytes: %+v %v", hits, err)
		}
		b.act(t, func(at func(string) string) error {
			made := 1 // fill
			for ; ; made++ {
				if err := os.Mkdir(at(fmt.Sprint("d", made)), 0o755); err != nil {
					if !errors.Is(err, unix.ENOSPC) {
						return err
					}
					break
				}
			}
			if made < 50 || made > 51 { // see OwnInodes
				t.Errorf("%d inodes, not 50", made)
			}
			return nil
		})
		if hits, err := b.Full(); err != nil || len(hits) != 2 || hits[1].Ceiling != sandbox.HitDiskInodes || hits[1].Limit != 50 {
			t.Errorf("inodes: %+v %v", hits, err)
		}
	})
}

// T066: very many names and very deep directories cost neither memory nor descriptors, in any of the ways.
func TestMany(t *testing.T) {
	dir := sourceDir(t, nil)
	b := newBox(t, dir, func(o *Options) { o.Target, o.Size = mnt, sandbox.Overlay{Bytes: 1 << 20, Inodes: 200_000} })
	const many = maxHeld + 2*batch
	b.act(t, func(at func(string) string) error {
		if err := os.Mkdir(at("many"), 0o755); err != nil {
			return err
		}
		for i := range many {
			if err := unix.Mknod(at(fmt.Sprintf("many/%06d", i)), unix.S_IFREG|0o644, 0); err != nil {
				return err
			}
		}
		for i := range 10 { // each a reason to forget what waits
			if err := os.MkdirAll(at(fmt.Sprintf("many/%06d.d/x", i*7000)), 0o755); err != nil {
				return err
			}
		}
		return nil
	})
	n, after := 0, ""
	for more := true; more; {
		var page []sandbox.Change
		var err error
		if page, more, err = b.Changes(context.Background(), after, 50_000); err != nil {
			t.Fatal(err)
		}
		for _, c := range page {
			if comparePaths(after, c.Path) >= 0 {
				t.Fatalf("%q after %q", c.Path, after)
			}
			after = c.Path
		}
		n += len(page)
	}
	if n != many+21 {
		t.Errorf("%d changes, not %d", n, many+21)
	}
	// Deeper than a path can say: refused, not walked for ever; and gone when it is thrown away.
	b.act(t, func(at func(string) string) error {
		fd, err := unix.Open(at("."), unix.O_PATH|unix.O_DIRECTORY, 0)
		for range 10_000 {
			if err != nil {
				return err
			}
			err = unix.Mkdirat(fd, "d", 0o755)
			next, errOpen := unix.Openat(fd, "d", unix.O_PATH|unix.O_DIRECTORY, 0)
			unix.Close(fd)
			fd, err = next, must(err, errOpen)
		}
		return unix.Close(fd)
	})
	if _, _, err := b.Changes(context.Background(), "a", 50_000); codeOf(err) != sandbox.CodeConflict {
		t.Errorf("deep: %v", err)
	}
	session(t, b.Tree, func(ns *os.File) {
		if err := b.Discard(ns); err != nil {
			t.Fatal(err)
		}
	})
}

// Discarded is discarded: the session sees the directory as it is, its room is free again, and protected
// paths stay so. Somebody else's mount at the same place is not touched, and there is an end to it.
func TestDiscard(t *testing.T) {
	everyWay(t, func(t *testing.T) {
		dir := sourceDir(t, sample)
		b := newBox(t, dir, func(o *Options) { o.Target, o.Protected = mnt, []string{"dir/a", ".mcp.json"} })
		session(t, b.Tree, func(ns *os.File) {
			as := func(fn func() error) {
				t.Helper()
				if err := thread.Enter(ns, func() error { become(); return fn() }); err != nil {
					t.Fatal(err)
				}
			}
			if err := b.Discard(ns); err != nil { // of nothing
				t.Fatal(err)
			}
			for range 2 {
				as(func() error {
					return must(os.Remove(mnt+"/file"), os.WriteFile(mnt+"/fill", make([]byte, 15<<20), 0o644), os.RemoveAll(mnt+"/tree"))
				})
				equal(t, "changes", b.changes(t), []string{"deleted file file", "added file fill", "deleted dir tree"})
				old, err := unix.Dup(int(b.layers.store.Fd()))
				if err != nil {
					t.Fatal(err)
				}
				if err := b.Discard(ns); err != nil {
					t.Fatal(err)
				}
				equal(t, "changes after it", b.changes(t), nil)
				var st unix.Statfs_t
				if err := unix.Fstatfs(old, &st); err != nil || st.Bfree != st.Blocks || int64(st.Files-st.Ffree) > OwnInodes+8 {
					t.Errorf("of the old one %d blocks and %d inodes are left, %v", st.Blocks-st.Bfree, st.Files-st.Ffree, err)
				}
				unix.Close(old)
				as(func() error {
					data, err := os.ReadFile(mnt + "/file")
					if string(data) != "old" {
						t.Errorf("file is %q", data)
					}
					for _, name := range []string{"dir/a", ".mcp.json"} {
						if err := os.WriteFile(mnt+"/"+name, nil, 0o644); !errors.Is(err, unix.EROFS) {
							t.Errorf("protected %s: %v", name, err)
						}
					}
					return err
				})
			}
			if err := thread.Enter(ns, func() error { return unix.Mount("other", mnt, "tmpfs", 0, "") }); err != nil {
				t.Fatal(err)
			}
			if err := b.Discard(ns); codeOf(err) != sandbox.CodeConflict {
				t.Errorf("over another mount: %v", err)
			}
			b.discards = maxDiscards
			if err := b.Discard(ns); codeOf(err) != sandbox.CodeBusy {
				t.Errorf("too often: %v", err)
			}
		})
	})
}

// Save and Restore: another program goes on with the same overlay.
func TestSave(t *testing.T) {
	b := newBox(t, sourceDir(t, sample), nil)
	b.act(t, change)
	st, files := b.Save()
	for i, f := range files {
		fd, err := unix.Dup(int(f.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		files[i] = os.NewFile(uintptr(fd), f.Name())
	}
	again, err := Restore(st, files)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	other := &box{again, b.Mounted, b.dir, b.source}
	equal(t, "changes", other.changes(t), changed)
	other.commit(t)
	equal(t, "committed", content(t, b.dir), committed)
}

// Nobody who looks at how full an overlay is waits for one that is being emptied.
func TestFillDoesNotWait(t *testing.T) {
	s := &Space{}
	s.mu.Lock()
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		if bytes, inodes := s.Fill(); bytes != (sandbox.Fill{}) || inodes != (sandbox.Fill{}) {
			t.Errorf("%+v %+v", bytes, inodes)
		}
		if hits, err := s.Full(); hits != nil || err != nil {
			t.Errorf("%+v %v", hits, err)
		}
	}()
	select {
	case <-looked:
	case <-time.After(5 * time.Second):
		t.Fatal("it waits")
	}
}
