package ledger

import (
	"cmp"
	"iter"
	"math"
	"slices"
)

// roll is a list in order of sequence number, of which any part can be taken out.
type roll[T any] struct {
	slots []slot[T]
	holes int
}

type slot[T any] struct {
	seq  int64
	item *T // nil: taken out
}

// add puts item at the end. seq is above all that were added before.
func (r *roll[T]) add(seq int64, item *T) { r.slots = append(r.slots, slot[T]{seq, item}) }

func (r *roll[T]) remove(seq int64) {
	at, ok := r.find(seq)
	if !ok || r.slots[at].item == nil {
		return
	}
	r.slots[at].item = nil
	r.holes++
	for len(r.slots) > 0 && r.slots[0].item == nil { // the common case: it was the oldest
		r.slots = r.slots[1:]
		r.holes--
	}
	if r.holes > 32 && r.holes > len(r.slots)/2 {
		r.slots = slices.DeleteFunc(r.slots, func(s slot[T]) bool { return s.item == nil })
		r.holes = 0
	}
}

// find returns where seq is, or would be.
func (r *roll[T]) find(seq int64) (int, bool) {
	return slices.BinarySearchFunc(r.slots, seq, func(s slot[T], seq int64) int { return cmp.Compare(s.seq, seq) })
}

func (r *roll[T]) len() int { return len(r.slots) - r.holes }

// oldest returns the first item of a roll that is not empty.
func (r *roll[T]) oldest() *T { return r.slots[0].item }

// upward goes through all of it. The item that it is at can be removed.
func (r *roll[T]) upward() iter.Seq[*T] { return r.upwardFrom(math.MinInt64) }

// upwardFrom goes through what has this sequence number or a greater one.
func (r *roll[T]) upwardFrom(seq int64) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for seq := seq; ; {
			at, _ := r.find(seq)
			for at < len(r.slots) && r.slots[at].item == nil {
				at++
			}
			if at == len(r.slots) {
				return
			}
			here := r.slots[at]
			if !yield(here.item) {
				return
			}
			seq = here.seq + 1
		}
	}
}

// downward goes through what is below a sequence number.
func (r *roll[T]) downward(below int64) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		at, _ := r.find(below)
		for _, s := range slices.Backward(r.slots[:at]) {
			if s.item != nil && !yield(s.item) {
				return
			}
		}
	}
}
