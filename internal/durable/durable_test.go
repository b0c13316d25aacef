package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// What is there under a private name and is not a private directory is refused, and is
// left as it was (CVE-2021-41103).
func TestPrivateDir(t *testing.T) {
	mkdir := func(mode fs.FileMode) func(string) error {
		return func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, mode)) }
	}
	rows := []struct {
		name string
		make func(dir string) error
		ok   bool
	}{
		{"nothing", func(string) error { return nil }, true},
		{"0700", mkdir(0o700), true},
		{"0500", mkdir(0o500), true},
		{"0750", mkdir(0o750), false},
		{"0701", mkdir(0o701), false},
		{"0777", mkdir(0o777), false},
		{"file", func(dir string) error { return os.WriteFile(dir, nil, 0o600) }, false},
		{"link", func(dir string) error {
			return errors.Join(os.Mkdir(dir+"-real", 0o700), os.Symlink(dir+"-real", dir))
		}, false},
		{"dangling link", func(dir string) error { return os.Symlink(dir+"-none", dir) }, false},
		{"somebody else's", func(dir string) error {
			return errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, 12345, -1))
		}, false},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "private")
			if err := row.make(dir); errors.Is(err, fs.ErrPermission) {
				if os.Getenv("STOCKADE_NOSKIP") == "1" {
					t.Fatal(err)
				}
				t.Skipf("giving a directory away needs CAP_CHOWN: %v", err)
			} else if err != nil {
				t.Fatal(err)
			}
			before, _ := os.Lstat(dir)
			if err := PrivateDir(dir); (err == nil) != row.ok {
				t.Errorf("error %v, want ok %v", err, row.ok)
			}
			after, err := os.Lstat(dir)
			if row.ok && (err != nil || !after.IsDir() || after.Mode().Perm()&0o077 != 0) {
				t.Errorf("it is %v, %v", after, err)
			}
			if before != nil && after.Mode() != before.Mode() {
				t.Errorf("mode was %v, is %v", before.Mode(), after.Mode())
			}
		})
	}
	if err := PrivateDir(filepath.Join(t.TempDir(), "no", "parent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a parent: %v", err)
	}
}

func TestPublish(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	content := func(want string, mode fs.FileMode) {
		t.Helper()
		got, err := os.ReadFile(name)
		info, statErr := os.Stat(name)
		if err != nil || statErr != nil || string(got) != want || info.Mode() != mode {
			t.Errorf("%q, %v; %v, %v", got, info.Mode(), err, statErr)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("beside it: %v, %v", entries, err)
		}
	}
	if err := Create(name, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	content("one", 0o600)
	if err := Create(name, []byte("two"), 0o644); !errors.Is(err, fs.ErrExist) {
		t.Errorf("create over a file: %v", err)
	}
	content("one", 0o600)
	if err := Replace(name, []byte("three"), 0o644); err != nil {
		t.Fatal(err)
	}
	content("three", 0o644)
	if err := Replace(filepath.Join(dir, "no", "file"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a directory: %v", err)
	}
}

func TestAllocate(t *testing.T) {
	for name, allocate := range map[string]func(*os.File, int64) error{"fallocate": Allocate, "zeros": writeZeros} {
		t.Run(name, func(t *testing.T) {
			f, err := os.Create(filepath.Join(t.TempDir(), "file"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.Write([]byte("kept")); err != nil {
				t.Fatal(err)
			}
			const size = 300<<10 + 1
			if err := allocate(f, size); err != nil {
				t.Fatal(err)
			}
			if err := SyncData(f); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(f.Name())
			if err != nil || len(got) != size || string(got[:4]) != "kept" || got[4] != 0 || got[size-1] != 0 {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
	f, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := SyncData(f); err == nil {
		t.Error("a closed file is synced")
	}
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	lock, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(dir); !errors.Is(err, ErrLocked) {
		t.Errorf("second owner: %v", err)
	}
	lock.Close()
	lock, err = Lock(dir)
	if err != nil {
		t.Fatalf("after it was given back: %v", err)
	}
	lock.Close()
}
