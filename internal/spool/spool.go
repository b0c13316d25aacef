// Package spool keeps the output of executions on the disk while it is produced. Bytes go
// from the pipe to the file inside the kernel (splice), so that at no instant a byte is in
// this process only: whenever the process is killed, each byte that was written is in the
// file or still in the pipe, once. The length of a file is the truth about its stream.
//
// It does not survive a power cut: nothing is synced while a command runs. What lasts is what
// [Log.Commit] made a blob. It never interprets, removes or ages output by itself.
//
//	DIR/ID.stdout  DIR/ID.stderr    what the process wrote, from the first byte
//	DIR/ID.chunks                   in which order it came; see FORMAT.md
//	DIR/ID.ring                     where a ring begins
//	DIR/ID.notes                    of a log that is recorded: what happened beside the output
//	DIR/.spare-N                    empty, for the next execution
package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/durable"
)

// Stream is one of the outputs of a process.
type Stream int

// The streams of a process.
const (
	Stdout Stream = iota
	Stderr
)

var streams = [...]Stream{Stdout, Stderr}

func (s Stream) String() string { return [...]string{"stdout", "stderr"}[s] }

// The modes of a stream's file say, across a kill, what becomes of it. Changing a mode needs no
// room on the disk.
const (
	modeTaking = 0o600 // bytes are added
	modeFinal  = 0o400 // it is a blob, or about to be one: nothing is added
	modeCut    = 0o500 // bytes were lost behind what it has: nothing is added
)

var (
	errID  = errors.New("malformed execution id")
	errCut = errors.New("output was lost while an earlier process kept it")
)

// Store is a directory of logs. Its methods may be called at the same time.
type Store struct {
	path   string
	dir    *os.File
	null   *os.File
	spares spares
}

// Open opens the store in dir, which it makes if need be. One process at a time may have it;
// the caller sees to that. The caller closes it.
func Open(dir string) (*Store, error) {
	if err := durable.PrivateDir(dir); err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	s, err := View(dir)
	if err != nil {
		return nil, err
	}
	if err := s.adopt(); err != nil {
		s.Close()
		return nil, fmt.Errorf("spool: %w", err)
	}
	return s, nil
}

// View is the store in dir for who only lists it, beside whoever has it open.
func View(dir string) (*Store, error) {
	d, err := os.OpenFile(dir, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	null, err := os.OpenFile("/dev/null", os.O_WRONLY, 0)
	if err != nil {
		d.Close()
		return nil, fmt.Errorf("spool: %w", err)
	}
	return &Store{path: dir, dir: d, null: null, spares: spares{logs: map[string]int{}}}, nil
}

// Close gives the directory up. Logs are closed before it.
func (s *Store) Close() error { return errors.Join(s.dir.Close(), s.null.Close()) }

// open opens a file of the store.
func (s *Store) open(name string, flags int, mode uint32) (*os.File, error) {
	for {
		fd, err := unix.Openat(int(s.dir.Fd()), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
		switch err {
		case nil:
			return os.NewFile(uintptr(fd), filepath.Join(s.path, name)), nil
		case unix.EINTR:
		default:
			return nil, &fs.PathError{Op: "open", Path: filepath.Join(s.path, name), Err: err}
		}
	}
}

// stat looks at a file of the store, which must be a regular one.
func (s *Store) stat(name string) (st unix.Stat_t, err error) {
	err = unix.Fstatat(int(s.dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = unix.EINVAL
	}
	if err != nil {
		return st, &fs.PathError{Op: "stat", Path: filepath.Join(s.path, name), Err: err}
	}
	return st, nil
}

// Kept is what the store has of one execution.
type Kept struct {
	ID       string
	Bytes    int64 // of all its files; what has become a blob is counted here too until Remove
	Modified time.Time
}

// List gives what is kept, by id.
func (s *Store) List() ([]Kept, error) {
	entries, err := os.ReadDir(s.path)
	if err != nil {
		return nil, fmt.Errorf("list spool: %w", err)
	}
	found := map[string]Kept{}
	for _, e := range entries {
		id, suffix, _ := strings.Cut(e.Name(), ".")
		if !wellFormed(id) || !slices.Contains(suffixes[:], suffix) {
			continue
		}
		st, err := s.stat(e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed just now
		}
		if err != nil {
			return nil, fmt.Errorf("list spool: %w", err)
		}
		k := found[id]
		k.ID = id
		k.Bytes += min(st.Size, 512*st.Blocks) // a ring has a hole
		if at := time.Unix(st.Mtim.Unix()); at.After(k.Modified) {
			k.Modified = at
		}
		found[id] = k
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Kept) int { return strings.Compare(a.ID, b.ID) }), nil
}

// unlink removes a name. What is not there is no error.
func (s *Store) unlink(name string) error {
	err := unix.Unlinkat(int(s.dir.Fd()), name, 0)
	if err != nil && err != unix.ENOENT {
		return &fs.PathError{Op: "unlink", Path: filepath.Join(s.path, name), Err: err}
	}
	return nil
}

const chunksSuffix = "chunks"

// suffixes are the files of an execution. The chunk log comes first: without it the streams
// are still whole.
var suffixes = [...]string{chunksSuffix, Stdout.String(), Stderr.String(), ringSuffix, notesSuffix}

// wellFormed says whether id is one of [a-z0-9_-]{1,64}, which is a safe part of a file name.
func wellFormed(id string) bool {
	return id != "" && len(id) <= 64 && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}
