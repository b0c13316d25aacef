package ledger

// ring is a queue that keeps its memory: events come and go at the same pace, for as long
// as a supervisor lives.
type ring[T any] struct {
	items []T // the length is 0 or a power of two
	first int // place of the oldest
	len   int
}

// at returns the i-th oldest.
func (r *ring[T]) at(i int) *T { return &r.items[(r.first+i)&(len(r.items)-1)] }

func (r *ring[T]) push(item T) {
	if r.len == len(r.items) {
		grown := make([]T, max(16, 2*len(r.items)))
		n := copy(grown, r.items[r.first:])
		copy(grown[n:], r.items[:r.first])
		r.items, r.first = grown, 0
	}
	r.len++
	*r.at(r.len - 1) = item
}

// pop forgets the oldest.
func (r *ring[T]) pop() {
	var none T
	*r.at(0) = none // what it refers to can go
	r.first = (r.first + 1) & (len(r.items) - 1)
	r.len--
}
