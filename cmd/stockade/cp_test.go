package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"
)

// Progress is told of a file that is under way, not only of those that have come to their end; once a second, in bytes that grow.
func TestCopyTells(t *testing.T) {
	var told bytes.Buffer
	k := &copying{cli: &cli{stdout: io.Discard, stderr: &told}, flag: progressFlag{set: true, on: true}}
	in := &passing{k: k, r: strings.NewReader(strings.Repeat("x", 300))}
	out := &passing{k: k, w: io.Discard}
	piece := make([]byte, 100)
	for _, step := range []struct {
		do   func()
		late bool // a second has gone by
		want string
	}{
		{func() { io.ReadFull(in, piece) }, true, "stockade: 0 files, 100B\n"},
		{func() { io.ReadFull(in, piece) }, false, ""},
		{func() { out.Write(piece) }, true, "stockade: 0 files, 300B\n"},
		{func() { k.copied(300) }, false, ""},
		{func() { out.Write(piece[:7]) }, true, "stockade: 1 file, 307B\n"},
		{func() { k.copied(7); k.tell() }, false, "stockade: 2 files, 307B\n"},
	} {
		if step.late {
			k.told = time.Now().Add(-2 * time.Second)
		}
		told.Reset()
		if step.do(); told.String() != step.want {
			t.Errorf("%q, want %q", &told, step.want)
		}
	}
	k.flag.on, k.told = false, time.Time{}
	told.Reset()
	if out.Write(piece); told.Len() != 0 {
		t.Errorf("%q, and nobody asked", &told)
	}
}
