package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// readDirectory reads every file below a directory but those that nobody reads. Whoever could change one of them between
// two of its readings could change the policy: so they belong to whom we trust, and nobody else may write them.
func readDirectory(name string, t Trust) (map[string][]byte, error) {
	if err := t.reached(name); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	tree := newTree(t.Limits)
	if err := t.walk(root, ".", tree); err != nil {
		return nil, err
	}
	return tree.files, nil
}

// walk reads what is in a directory, and below.
func (t Trust) walk(root *os.Root, dir string, into *tree) error {
	f, err := root.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil {
		err = t.owned(dir, info)
	}
	if err != nil {
		return err
	}
	entries, err := f.ReadDir(into.left.Files + 1)
	if len(entries) == 0 {
		return nil // an end of file, which ReadDir with a limit has for an empty directory
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		if hidden(name) {
			continue
		}
		switch {
		case e.IsDir():
			if err = into.place(name, true); err == nil {
				err = t.walk(root, name, into)
			}
		case e.Type().IsRegular():
			if err = into.place(name, false); err == nil {
				err = t.file(root, name, into)
			}
		default:
			err = fmt.Errorf("%s: %v: only files and directories are read, and no link is followed", name, e.Type())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t Trust) file(root *os.Root, name string, into *tree) error {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%s is no file any more", name)
	default:
		err = t.owned(name, info)
	}
	if err != nil {
		return err
	}
	if err := into.read(name, info.Size(), f); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if n, _ := f.Read(make([]byte, 1)); n > 0 {
		return fmt.Errorf("%s grew while it was read", name)
	}
	return nil
}

// owned refuses what somebody else could write.
func (t Trust) owned(name string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("bug: no owner")
	}
	switch {
	case st.Uid != 0 && st.Uid != t.Owner:
		return fmt.Errorf("%s belongs to uid %d, want root or %d: %w", name, st.Uid, t.Owner, ErrUntrusted)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s has mode %04o: others than its owner may write it (chmod go-w): %w", name, info.Mode().Perm(), ErrUntrusted)
	}
	return nil
}

// reached refuses a way to the bundle on which somebody else could put another one in its place. In a directory with the
// sticky bit, like /tmp, nobody can who does not own it.
func (t Trust) reached(name string) error {
	at, err := filepath.Abs(name)
	if err == nil {
		at, err = filepath.EvalSymlinks(at)
	}
	if err != nil {
		return err
	}
	for at != "/" {
		at = filepath.Dir(at)
		info, err := os.Stat(at)
		if err != nil {
			return err
		}
		if info.Mode()&fs.ModeSticky != 0 {
			continue
		}
		if err := t.owned(at, info); err != nil {
			return err
		}
	}
	return nil
}
