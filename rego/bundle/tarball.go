package bundle

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// readTarball reads every file of a gzipped tar archive.
func readTarball(name string, t Trust) (map[string][]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // a fifo is refused, not waited for
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is neither a directory nor a file")
	case info.Size() > t.Limits.Bytes:
		return nil, fmt.Errorf("%d bytes, at most %d are read", info.Size(), t.Limits.Bytes)
	}
	if len(t.Keys) == 0 { // whoever can write it decides what is policy
		if err := t.owned(name, info); err != nil {
			return nil, err
		}
		if err := t.reached(name); err != nil {
			return nil, err
		}
	}
	return unpackTarball(f, t.Limits)
}

func unpackTarball(r io.Reader, l Limits) (map[string][]byte, error) {
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	// One byte more than is allowed, headers and padding included, so that too much is told from an end.
	bounded := &io.LimitedReader{R: z, N: l.Bytes + 2*512*int64(l.Files) + 1}
	archive := tar.NewReader(bounded)
	tree := newTree(l)
	for {
		h, err := archive.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, tooMuch(bounded, err)
		}
		if err := tree.addEntry(h, archive); err != nil {
			return nil, tooMuch(bounded, fmt.Errorf("%.200q: %w", h.Name, err))
		}
	}
	// What follows the end of the archive is padding, and behind it is the checksum of it all.
	rest := make([]byte, 512)
	for {
		n, err := bounded.Read(rest)
		for _, b := range rest[:n] {
			if b != 0 {
				return nil, errors.New("there is something behind the end of the archive")
			}
		}
		if err == io.EOF {
			return tree.files, tooMuch(bounded, nil)
		}
		if err != nil {
			return nil, err
		}
	}
}

func tooMuch(r *io.LimitedReader, err error) error {
	if r.N <= 0 {
		return errors.New("unpacked it is larger than is read")
	}
	return err
}

// tree is what has been read of a bundle so far.
type tree struct {
	files map[string][]byte
	dirs  map[string]bool
	left  Limits
	most  Limits
}

func newTree(l Limits) *tree {
	return &tree{files: map[string][]byte{}, dirs: map[string]bool{}, left: l, most: l}
}

// addEntry takes in one entry of an archive: a file or a directory, and nothing else.
func (t *tree) addEntry(h *tar.Header, content io.Reader) error {
	name, ok := strings.CutPrefix(h.Name, "./") // as tar has it
	if !ok {
		name = strings.TrimPrefix(name, "/") // as OPA has it
	}
	dir := h.Typeflag == tar.TypeDir
	if dir {
		name = strings.TrimSuffix(name, "/")
		if name == "" || name == "." {
			return nil
		}
	} else if h.Typeflag != tar.TypeReg {
		return fmt.Errorf("an entry of type %q: only files and directories are taken", h.Typeflag)
	}
	if err := t.place(name, dir); err != nil || dir {
		return err
	}
	return t.read(name, h.Size, content)
}

// place says where a file or directory comes to be, and that nothing else is there.
func (t *tree) place(name string, dir bool) error {
	switch {
	case !fs.ValidPath(name) || name == "." || strings.ContainsAny(name, "\\\x00"):
		return errors.New("it is no path below the bundle")
	case len(name) > maxPath || strings.Count(name, "/") >= maxDepth:
		return errors.New("the path is too long or too deep")
	}
	if _, twice := t.files[name]; twice || t.dirs[name] && !dir {
		return errors.New("it is there twice")
	}
	for at := path.Dir(name); at != "."; at = path.Dir(at) {
		if _, file := t.files[at]; file {
			return fmt.Errorf("%s is a file, and a directory", at)
		}
		t.dirs[at] = true
	}
	if dir {
		t.dirs[name] = true
	}
	if t.left.Files--; t.left.Files < 0 {
		return fmt.Errorf("more than %d files", t.most.Files)
	}
	return nil
}

// read takes in the content of a file. Its size is what it says, and no more memory is taken than is left for that.
func (t *tree) read(name string, size int64, content io.Reader) error {
	if size < 0 || size > t.left.Bytes {
		return fmt.Errorf("with it there are more than %d bytes", t.most.Bytes)
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(content, text); err != nil {
		return err
	}
	t.left.Bytes -= size
	t.files[name] = text
	return nil
}
