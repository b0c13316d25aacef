package journal

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stockade-dev/stockade/internal/durable"
)

// watchedDisk is a disk that knows what a power cut would leave of it: content that was
// synced and names whose directory was synced for sure, of the rest anything. It does
// not really sync, so that a test can do thousands of operations.
type watchedDisk struct {
	dir string
	// fault is asked before each operation, with its number and kind. A write that
	// gets an error has written half.
	fault func(op int, kind string) error

	mu    sync.Mutex
	ops   int
	kinds map[string]int
	open  map[*os.File]*stored
	now   map[string]*stored // by name
	kept  map[string]*stored // by name, as of the last sync of the directory
}

// stored is what is known of one file. Its present content is in the file itself.
type stored struct {
	synced []byte
	dirty  map[int]bool // sectors written since the last sync, failed syncs included
}

const sector = 512

func (s *stored) write(from, to int64) {
	if s.dirty == nil {
		s.dirty = map[int]bool{}
	}
	for i := from / sector; i*sector < to; i++ {
		s.dirty[int(i)] = true
	}
}

// sync keeps the sectors that are dirty and no others: what a failed sync has dropped is
// in the file, and not on the disk.
func (s *stored) sync(present []byte) {
	synced := make([]byte, len(present))
	copy(synced, s.synced)
	for i := range s.dirty {
		if at := i * sector; at < len(present) {
			end := min(at+sector, len(present))
			copy(synced[at:end], present[at:end])
		}
	}
	s.synced, s.dirty = synced, nil
}

func watch(dir string, fault func(op int, kind string) error) *watchedDisk {
	if fault == nil {
		fault = func(int, string) error { return nil }
	}
	return &watchedDisk{
		dir: dir, fault: fault, kinds: map[string]int{},
		open: map[*os.File]*stored{}, now: map[string]*stored{}, kept: map[string]*stored{},
	}
}

// step counts an operation and gives it its fault.
func (d *watchedDisk) step(kind string) error {
	d.ops++
	d.kinds[kind]++
	return d.fault(d.ops-1, kind)
}

// of is what is known of f. A file that was there before counts as synced.
func (d *watchedDisk) of(f *os.File) *stored {
	if s := d.open[f]; s != nil {
		return s
	}
	name := filepath.Base(f.Name())
	s := d.now[name]
	if s == nil {
		content, err := os.ReadFile(f.Name())
		if err != nil {
			panic(err)
		}
		s = &stored{synced: content}
		d.now[name], d.kept[name] = s, s
	}
	d.open[f] = s
	return s
}

func (d *watchedDisk) disk() *disk {
	locked := func() func() { d.mu.Lock(); return d.mu.Unlock }
	return &disk{
		create: func(name string) (*os.File, error) {
			defer locked()()
			if err := d.step("create"); err != nil {
				return nil, err
			}
			f, err := realDisk.create(name)
			if err == nil {
				s := &stored{}
				d.open[f], d.now[filepath.Base(name)] = s, s
			}
			return f, err
		},
		write: func(f *os.File, b []byte, off int64) (int, error) {
			defer locked()()
			s := d.of(f)
			s.write(off, off+int64(len(b)))
			if err := d.step("write"); err != nil {
				n, _ := f.WriteAt(b[:len(b)/2], off)
				return n, err
			}
			return f.WriteAt(b, off)
		},
		sync: func(f *os.File) error {
			defer locked()()
			s := d.of(f)
			if err := d.step("sync"); err != nil {
				s.dirty = nil
				return err
			}
			s.sync(readAll(f))
			return nil
		},
		allocate: func(f *os.File, size int64) error {
			defer locked()()
			d.of(f)
			if err := d.step("allocate"); err != nil {
				return err
			}
			return durable.Allocate(f, size)
		},
		truncate: func(f *os.File, size int64) error {
			defer locked()()
			s := d.of(f)
			if err := d.step("truncate"); err != nil {
				return err
			}
			s.write(size, int64(len(readAll(f)))) // zeros, should it grow again
			return f.Truncate(size)
		},
		rename: func(from, to string) error {
			defer locked()()
			if err := d.step("rename"); err != nil {
				return err
			}
			d.now[filepath.Base(to)] = d.now[filepath.Base(from)]
			delete(d.now, filepath.Base(from))
			return os.Rename(from, to)
		},
		remove: func(name string) error {
			defer locked()()
			if err := d.step("remove"); err != nil {
				return err
			}
			delete(d.now, filepath.Base(name))
			return os.Remove(name)
		},
		syncDir: func(*os.File) error {
			defer locked()()
			if err := d.step("syncDir"); err != nil {
				return err
			}
			d.kept = maps.Clone(d.now)
			return nil
		},
	}
}

func readAll(f *os.File) []byte {
	info, err := f.Stat()
	if err != nil {
		panic(err)
	}
	b := make([]byte, info.Size())
	if _, err := f.ReadAt(b, 0); err != nil && len(b) > 0 {
		panic(err)
	}
	return b
}

// synced is what would be left of the file with this name.
func (d *watchedDisk) synced(name string) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.kept[name]; s != nil {
		return s.synced
	}
	return nil
}

// powerCut makes a directory as it could be found after the power failed now. Without
// rng nothing survives that need not.
func (d *watchedDisk) powerCut(t testing.TB, rng *rand.Rand) string {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	dir := fresh(t)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	names := maps.Clone(d.kept)
	if rng != nil {
		// Each change of a name may have come to the disk without the others.
		both := maps.Clone(d.kept)
		maps.Copy(both, d.now)
		for _, name := range slices.Sorted(maps.Keys(both)) {
			if rng.IntN(2) == 0 {
				continue
			}
			if names[name] = d.now[name]; names[name] == nil {
				delete(names, name)
			}
		}
	}
	for name, s := range names {
		content := s.synced
		if rng != nil {
			// Where it stands now, under whatever name.
			for other, o := range d.now {
				if o == s {
					present, err := os.ReadFile(filepath.Join(d.dir, other))
					if err == nil {
						content = mix(rng, s.synced, present)
					}
				}
			}
		}
		write(t, filepath.Join(dir, name), content)
	}
	for _, name := range []string{keyFile, publicKeyFile, checkpointFile} {
		if d.kept[name] == nil && d.now[name] == nil { // made without this disk, durably
			content, err := os.ReadFile(filepath.Join(d.dir, name))
			if err != nil {
				continue
			}
			write(t, filepath.Join(dir, name), content)
		}
	}
	return dir
}

// mix takes each sector from the one or from the other, and the length too.
func mix(rng *rand.Rand, synced, present []byte) []byte {
	size := len(synced)
	if rng.IntN(2) == 0 {
		size = len(present)
	}
	mixed := make([]byte, size)
	copy(mixed, synced)
	for at := 0; at < min(size, len(present)); at += sector {
		if rng.IntN(2) == 0 {
			end := min(at+sector, size, len(present))
			copy(mixed[at:end], present[at:end])
		}
	}
	return mixed
}

func write(t testing.TB, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// clone copies a journal's files, as kill -9 leaves them.
func clone(t testing.TB, from string) string {
	t.Helper()
	dir := fresh(t)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, e.Name()), bytes.Clone(content))
	}
	return dir
}
