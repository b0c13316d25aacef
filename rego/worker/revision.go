package worker

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io/fs"
	"strings"
)

// pack puts a revision into bytes, which unpack makes a file system of again: what may decide, test or describe, but nothing in
// directories whose names begin with a dot.
func pack(fsys fs.FS) ([]byte, error) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	total := 0
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case entry.IsDir():
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		if total += len(text); total > maxRevision {
			return fmt.Errorf("more than %d bytes", maxRevision)
		}
		w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	})
	if err == nil {
		err = z.Close()
	}
	if err == nil && b.Len() > maxRevision {
		err = fmt.Errorf("more than %d bytes", maxRevision)
	}
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	return b.Bytes(), nil
}

func unpack(b []byte) (fs.FS, error) {
	z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	return z, nil
}
