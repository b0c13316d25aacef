package spool

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// spares are empty files that wait for a name. ext4 gives no inode out again for minutes after
// it was freed, and searches past all of those (recently_deleted in fs/ext4/ialloc.c): where each command makes a
// file and removes one, making it takes 100 to 300 µs. A spare is renamed in 3.
//
// A file becomes one only when no log can read it any more: else the reader of one execution would see the
// output of another.
type spares struct {
	mu    sync.Mutex
	names []string
	next  int            // number of the next name
	logs  map[string]int // logs that are open, by id
}

const (
	sparePrefix  = ".spare-"
	mostSpares   = 256
	largestSpare = 1 << 20 // what is larger is removed: emptying it is most of the work
)

// adopt takes over what an earlier process left.
func (s *Store) adopt() error {
	entries, err := os.ReadDir(s.path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), sparePrefix)
		if !ok {
			continue
		}
		n, numberErr := strconv.Atoi(number)
		st, err := s.stat(e.Name())
		// A power cut may have left more than a name.
		if numberErr != nil || err != nil || st.Size != 0 || st.Nlink != 1 || st.Mode&0o777 != modeTaking {
			if err := s.unlink(e.Name()); err != nil {
				return err
			}
			continue
		}
		s.spares.names = append(s.spares.names, e.Name())
		s.spares.next = max(s.spares.next, n+1)
	}
	return nil
}

// enter counts an open log of id, and says whether it is the only one; leave counts it off.
func (s *Store) enter(id string) (alone bool) {
	s.spares.mu.Lock()
	defer s.spares.mu.Unlock()
	s.spares.logs[id]++
	return s.spares.logs[id] == 1
}

func (s *Store) leave(id string) {
	s.spares.mu.Lock()
	defer s.spares.mu.Unlock()
	if s.spares.logs[id]--; s.spares.logs[id] == 0 {
		delete(s.spares.logs, id)
	}
}

// create makes a file of an execution that is not there yet.
func (s *Store) create(id, suffix string) (*os.File, error) {
	if !wellFormed(id) {
		return nil, fmt.Errorf("%w: %.80q", errID, id)
	}
	name := id + "." + suffix
	if spare, ok := s.spare(); ok {
		dir := int(s.dir.Fd())
		if unix.Renameat2(dir, spare, dir, name, unix.RENAME_NOREPLACE) == nil {
			return s.open(name, os.O_RDWR, 0)
		}
		// There already, or a file system that cannot do it: what follows tells.
	}
	return s.open(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, modeTaking)
}

func (s *Store) spare() (name string, ok bool) {
	s.spares.mu.Lock()
	defer s.spares.mu.Unlock()
	last := len(s.spares.names) - 1
	if last < 0 {
		return "", false
	}
	name = s.spares.names[last]
	s.spares.names = s.spares.names[:last]
	return name, true
}

// Remove removes what is kept of an execution. What is not there is no error. A log that is
// open can still be read.
func (s *Store) Remove(id string) error {
	if !wellFormed(id) {
		return fmt.Errorf("remove output: %w: %.80q", errID, id)
	}
	for _, suffix := range suffixes {
		name := id + "." + suffix
		if s.recycle(id, name) {
			continue
		}
		if err := s.unlink(name); err != nil {
			return fmt.Errorf("remove output: %w", err)
		}
	}
	return nil
}

// recycle makes a file of an execution a spare. It reports false for one that cannot be one, or that
// is not there.
func (s *Store) recycle(id, name string) bool {
	s.spares.mu.Lock() // no log of id is opened meanwhile
	defer s.spares.mu.Unlock()
	if s.spares.logs[id] > 0 || len(s.spares.names) >= mostSpares {
		return false
	}
	st, err := s.stat(name)
	if err != nil || st.Size > largestSpare || st.Nlink != 1 || st.Mode&0o777 != modeTaking {
		return false // a second name is a blob's
	}
	f, err := s.open(name, os.O_WRONLY|unix.O_TRUNC, 0)
	if err != nil {
		return false
	}
	f.Close()
	dir, spare := int(s.dir.Fd()), sparePrefix+strconv.Itoa(s.spares.next)
	if unix.Renameat(dir, name, dir, spare) != nil {
		return false
	}
	s.spares.next++
	s.spares.names = append(s.spares.names, spare)
	return true
}
