package runc

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/openat2"
	"github.com/stockade-dev/stockade/sandbox"
)

// The digest of a tree is SHA-256 over one record for each of its entries, in byte
// order of their paths. A record is five fields, each followed by one space but the
// last, which is followed by a NUL:
//
//	kind     d directory, f regular file, l symbolic link, x regular file that the
//	         caller may not read, o anything else
//	mode     permission bits, four octal digits (0777 for a link)
//	size     decimal: bytes of a file, of a link's target; otherwise 0
//	content  SHA-256 of a file's bytes or of a link's target, in hex; otherwise -
//	path     relative to the root of the tree, slashes between names; . for the root
//
// Owners and times are left out: they differ between machines that hold the same
// inputs. A directory on another file system is recorded and not entered, because the
// session does not see what is mounted there either.
type entry struct {
	path    string
	kind    byte
	mode    uint32
	size    int64
	content string
}

func (e entry) record(h hash.Hash) {
	fmt.Fprintf(h, "%c %04o %d %s %s\x00", e.kind, e.mode, e.size, e.content, e.path)
}

const (
	maxEntries  = 4 << 20 // of one tree
	hashWorkers = 2
)

// digests is the digesting of a session's declared inputs, in progress.
type digests struct {
	cancel context.CancelFunc
	done   chan struct{}
	trees  []sandbox.TreeDigest
	err    error
}

// digest starts to digest what spec declares as input: every path of a "paths" root,
// and the mounts that ask for it. The caller stops it.
func (r *Runner) digest(ctx context.Context, spec sandbox.Spec) *digests {
	sources := slices.Clone(spec.Root.Paths)
	for _, m := range spec.Mounts {
		if m.Digest {
			sources = append(sources, m.Source)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	d := &digests{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(d.done)
		for _, src := range sources {
			t, err := digestTree(ctx, spec.Caller, src)
			if err != nil {
				d.err = err
				return
			}
			d.trees = append(d.trees, t)
		}
	}()
	return d
}

func (d *digests) wait() ([]sandbox.TreeDigest, error) {
	<-d.done
	return d.trees, d.err
}

func (d *digests) stop() {
	d.cancel()
	<-d.done
}

// digestTree reads everything under the caller's identity.
func digestTree(ctx context.Context, caller sandbox.Caller, src sandbox.Source) (sandbox.TreeDigest, error) {
	out := sandbox.TreeDigest{Path: src.Path}
	var root *os.File
	var entries []entry
	err := as(caller, func() (err error) {
		if root, err = reopen(src, false); err != nil {
			return err
		}
		entries, err = list(ctx, root, src)
		return err
	})
	if root != nil {
		defer root.Close()
	}
	if err != nil {
		return out, fmt.Errorf("digest %s: %w", src.Path, err)
	}

	var next atomic.Int64
	var workers sync.WaitGroup
	errs := make([]error, hashWorkers)
	for w := range hashWorkers {
		workers.Go(func() {
			errs[w] = as(caller, func() error {
				buf := make([]byte, 128<<10)
				for {
					i := next.Add(1) - 1
					if i >= int64(len(entries)) {
						return nil
					}
					if err := ctx.Err(); err != nil {
						return err
					}
					if err := entries[i].read(root, buf); err != nil {
						return err
					}
				}
			})
		})
	}
	workers.Wait()
	if err := errors.Join(errs...); err != nil {
		return out, fmt.Errorf("digest %s: %w", src.Path, err)
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	h := sha256.New()
	for _, e := range entries {
		e.record(h)
		if e.kind == 'f' || e.kind == 'x' {
			out.Files++
			out.Bytes += e.size
		}
	}
	out.Digest = "sha256:" + hex.EncodeToString(h.Sum(nil))
	return out, nil
}

// list walks the tree and returns its entries, links read, files not.
func list(ctx context.Context, root *os.File, src sandbox.Source) ([]entry, error) {
	if src.Kind == "file" {
		return []entry{{path: ".", kind: 'f', mode: src.Mode & 0o777, content: "-"}}, nil
	}
	entries := []entry{{path: ".", kind: 'd', mode: src.Mode & 0o777, content: "-"}}
	for pending := []string{"."}; len(pending) > 0; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		path := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		dir, err := openBelow(root, path, unix.O_RDONLY|unix.O_DIRECTORY)
		if errors.Is(err, unix.EACCES) {
			continue // recorded by its parent; nobody inside can enter it either
		}
		if err != nil {
			return nil, err
		}
		names, err := dir.Readdirnames(-1)
		if err != nil {
			dir.Close()
			return nil, err
		}
		if len(entries)+len(names) > maxEntries {
			dir.Close()
			return nil, sandbox.Errorf(sandbox.CodeMountSource, "more than %d entries", maxEntries)
		}
		for _, name := range names {
			e := entry{path: name, content: "-", kind: 'o'}
			if path != "." {
				e.path = path + "/" + name
			}
			var st unix.Stat_t
			if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
				dir.Close()
				return nil, fmt.Errorf("%s: %w", e.path, err)
			}
			e.mode = st.Mode & 0o777
			switch st.Mode & unix.S_IFMT {
			case unix.S_IFDIR:
				e.kind = 'd'
				if st.Dev == src.Dev {
					pending = append(pending, e.path)
				}
			case unix.S_IFREG:
				e.kind, e.size = 'f', st.Size
			case unix.S_IFLNK:
				e.kind = 'l'
				buf := make([]byte, unix.PathMax)
				n, err := unix.Readlinkat(int(dir.Fd()), name, buf)
				if err != nil {
					dir.Close()
					return nil, fmt.Errorf("%s: %w", e.path, err)
				}
				sum := sha256.Sum256(buf[:n])
				e.size, e.content = int64(n), hex.EncodeToString(sum[:])
			}
			entries = append(entries, e)
		}
		dir.Close()
	}
	return entries, nil
}

// read fills in the content of a regular file.
func (e *entry) read(root *os.File, buf []byte) error {
	if e.kind != 'f' {
		return nil
	}
	f, err := openBelow(root, e.path, unix.O_RDONLY|unix.O_NONBLOCK)
	if errors.Is(err, unix.EACCES) {
		e.kind = 'x'
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	if e.size, err = io.CopyBuffer(h, struct{ io.Reader }{f}, buf); err != nil {
		return fmt.Errorf("%s: %w", e.path, err)
	}
	e.content = hex.EncodeToString(h.Sum(nil))
	return nil
}

// openBelow opens path below root, not through a link and not on another file system.
func openBelow(root *os.File, path string, flags uint64) (*os.File, error) {
	if path == "." && flags&unix.O_DIRECTORY == 0 {
		// root is the file itself, as a location: only its name in /proc opens it for reading.
		return os.Open(procFD(root))
	}
	fd, err := openat2.Open(int(root.Fd()), path, &unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC | unix.O_NOCTTY,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}
