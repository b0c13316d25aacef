// Package ripgrep has an rg that the operator named say which files of a directory may have lines that a pattern matches. It runs with the
// identity, the limits, the filter and the group of the file worker that asks, and it is believed in one thing only: that what it does not
// name need not be looked at. Whoever asks opens what it names by himself, by his own rules, and finds the lines himself.
//
//	supervisor                     file worker                      helper                       rg
//	  │  Program: sealed, checked     │  Start, before its own filter  │                            │
//	  ├──────────────────────────────▶├───────────────────────────────▶│  Serve                     │
//	  │                               │  search n {pattern}, directory │                            │
//	  │                               ├───────────────────────────────▶├── one for each search ────▶│
//	  │                               │◀───────────── names n, or why ─┤◀───────── names, NUL ──────┤
//	  │                               │  cancel n                      │                            │
//	  │                               ├───────────────────────────────▶│  kills it                  │
//
// The worker may execute nothing once it serves, so the helper is started before. It takes a pattern and a directory and makes the
// command line itself: a worker that was taken over by a file gets no program run that it chose, and no option of rg's that would run
// one. Whoever has the user of the session can kill either; the search is then somebody else's to make.
//
// It does not know what a line is: package search has the semantics, and the pattern as rg reads it.
package ripgrep

import (
	"encoding/binary"
	"errors"
)

// Kinds of messages. Each is one byte, the number of the search (u64, little-endian), and what belongs to it.
const (
	kindSearch = 1 + iota // a pattern; with the directory
	kindCancel            //
	kindNames             // as rg prints them: each ends in NUL
	kindFailed            // why
)

const (
	// mostNames is the longest list of names that is believed to be worth having.
	mostNames = 8 << 20
	// mostData bounds the memory of one rg, which holds a whole line at a time.
	mostData = 256 << 20
)

var errMalformed = errors.New("ripgrep: malformed message")

func message(kind byte, search uint64, rest []byte) []byte {
	return append(binary.LittleEndian.AppendUint64([]byte{kind}, search), rest...)
}

// split takes a message apart. The rest aliases it.
func split(msg []byte) (kind byte, search uint64, rest []byte, err error) {
	if len(msg) < 9 {
		return 0, 0, nil, errMalformed
	}
	return msg[0], binary.LittleEndian.Uint64(msg[1:]), msg[9:], nil
}
