package ledger

import (
	"cmp"
	"iter"
	"maps"
	"slices"
)

// shared is what all users have a part of. Where something has to go, it is the oldest of the user who has
// the most: what one of them does, a hundred thousand refused requests perhaps, takes nothing of another's out of
// view, least of all the keys that keep it from happening twice. A user is a uid: a scope is what the caller says (R090).
type shared[T any] struct {
	parts map[uint32]*roll[T]
	size  int
}

// add puts an item at the end of a user's part.
func (s *shared[T]) add(uid uint32, seq int64, item *T) {
	if s.parts == nil {
		s.parts = map[uint32]*roll[T]{}
	}
	if s.parts[uid] == nil {
		s.parts[uid] = new(roll[T])
	}
	s.parts[uid].add(seq, item)
	s.size++
}

func (s *shared[T]) remove(uid uint32, seq int64) {
	part := s.parts[uid]
	if part == nil {
		return
	}
	before := part.len()
	part.remove(seq)
	s.size += part.len() - before
	if part.len() == 0 {
		delete(s.parts, uid)
	}
}

func (s *shared[T]) len() int { return s.size }

// excess returns what goes first. There is something.
func (s *shared[T]) excess() *T {
	first := func(part *roll[T]) int64 { return part.slots[0].seq }
	return s.parts[largest(s.parts, (*roll[T]).len, first)].oldest()
}

// oldest goes through the first item of each user's.
func (s *shared[T]) oldest() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for _, part := range s.parts {
			if !yield(part.oldest()) {
				return
			}
		}
	}
}

// all goes through everything, one user after the other. The item that it is at can be removed.
func (s *shared[T]) all() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for _, uid := range slices.Sorted(maps.Keys(s.parts)) {
			for item := range s.parts[uid].upward() {
				if !yield(item) {
					return
				}
			}
		}
	}
}

// largest returns the user who has the most, and of several the one whose first is the oldest. It is the same
// whenever the records are read.
func largest[P any](parts map[uint32]P, size func(P) int, first func(P) int64) (uid uint32) {
	order := func(a, b uint32) int {
		p, q := parts[a], parts[b]
		return cmp.Or(cmp.Compare(size(q), size(p)), cmp.Compare(first(p), first(q)), cmp.Compare(a, b))
	}
	return slices.MinFunc(slices.Collect(maps.Keys(parts)), order)
}
