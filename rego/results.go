package rego

import (
	"maps"
	"slices"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
)

// results keep what rules had for results during one evaluation: OPA's cache of virtual documents, without a map for
// each element of each reference, and used again by the next evaluation.
type results struct {
	frames []*frame // OPA pushes one for each "with"
	spare  []*frame
	fixed  *constants // nil without any
}

type frame struct {
	first   map[uint64]int // index into entries by hash of the reference, +1
	entries []entry
	terms   []*ast.Term // of all references, one after the other
}

func newFrame() *frame { return &frame{first: map[uint64]int{}} }

// copy is another frame with the same entries.
func (f *frame) copy() *frame {
	return &frame{first: maps.Clone(f.first), entries: slices.Clone(f.entries), terms: slices.Clone(f.terms)}
}

type entry struct {
	from, to  int // the reference, in terms
	next      int // entry of the same hash, +1; 0 is none
	value     *ast.Term
	undefined bool
}

var resting = sync.Pool{New: func() any { return &results{} }}

func takeResults(fixed *constants) *results {
	r := resting.Get().(*results)
	r.fixed = fixed
	r.Push()
	return r
}

// rest empties r, which nobody uses any more, for another evaluation. Nothing is kept of one that was large.
func (r *results) rest() {
	for len(r.frames) > 0 {
		r.Pop()
	}
	r.fixed = nil
	resting.Put(r)
}

// maxResults bounds what a frame keeps its room for.
const maxResults = 4096

// Push begins a frame.
func (r *results) Push() {
	if n := len(r.spare); n > 0 {
		r.frames, r.spare = append(r.frames, r.spare[n-1]), r.spare[:n-1]
		return
	}
	r.frames = append(r.frames, newFrame())
}

// Pop ends one, and forgets what it had.
func (r *results) Pop() {
	last := len(r.frames) - 1
	f := r.frames[last]
	r.frames = r.frames[:last]
	if len(f.terms) > maxResults || len(r.spare) > 0 {
		return
	}
	clear(f.first)
	clear(f.entries)
	clear(f.terms)
	f.entries, f.terms = f.entries[:0], f.terms[:0]
	r.spare = append(r.spare, f)
}

// Get is the result for a reference, or that it is known to have none.
func (r *results) Get(ref ast.Ref) (*ast.Term, bool) {
	hash := hashOf(ref)
	e := r.frames[len(r.frames)-1].find(ref, hash)
	if e == nil && len(r.frames) == 1 {
		e = r.fixed.find(ref, hash)
	}
	switch {
	case e == nil:
		return nil, false
	case e.undefined:
		return nil, true
	}
	return e.value, false
}

// Put keeps a result; nil is none.
func (r *results) Put(ref ast.Ref, value *ast.Term) {
	f, hash := r.frames[len(r.frames)-1], hashOf(ref)
	e := f.find(ref, hash)
	if e == nil {
		e = f.add(ref, hash)
	}
	if value != nil {
		e.value = value
	} else {
		e.undefined = true
	}
}

// Keys are the references that have a result.
func (r *results) Keys() []ast.Ref {
	f := r.frames[len(r.frames)-1]
	var keys []ast.Ref
	for _, e := range f.entries {
		if e.value != nil {
			keys = append(keys, append(ast.Ref{}, f.terms[e.from:e.to]...))
		}
	}
	return keys
}

// add makes an entry, which must not be there.
func (f *frame) add(ref ast.Ref, hash uint64) *entry {
	from := len(f.terms)
	f.terms = append(f.terms, ref...) // OPA goes on to write into ref
	f.entries = append(f.entries, entry{from: from, to: len(f.terms), next: f.first[hash]})
	f.first[hash] = len(f.entries)
	return &f.entries[len(f.entries)-1]
}

func (f *frame) find(ref ast.Ref, hash uint64) *entry {
	for i := f.first[hash]; i > 0; i = f.entries[i-1].next {
		if e := &f.entries[i-1]; ast.Ref(f.terms[e.from:e.to]).Equal(ref) {
			return e
		}
	}
	return nil
}

// hashOf depends on the order of the elements, unlike the hash of a [ast.Ref]. Of a reference to a rule its last two
// words are enough to tell it from most others: they all begin alike, and texts are hashed again each time. The key of a function's
// result begins with the reference of the function.
func hashOf(ref ast.Ref) uint64 {
	h := uint64(len(ref))
	if f, ok := ref[0].Value.(ast.Ref); ok {
		h ^= uint64(f[len(f)-1].Hash())
		ref = ref[1:]
	} else {
		ref = ref[max(0, len(ref)-2):]
	}
	for _, t := range ref {
		h = (h ^ uint64(t.Hash())) * 1099511628211
	}
	return h
}
