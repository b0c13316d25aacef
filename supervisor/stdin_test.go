package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stockade-dev/stockade/internal/blob"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// R037, T114: a blob that is read as stdin is a copy. Nothing of it leads to the host's file,
// and one that nobody reads holds up nothing.
func TestStdinOfBlobs(t *testing.T) {
	blobs := store(t)
	for _, tt := range []struct {
		name string
		size int
		used int64 // of the memory for all
		is   string
	}{
		{"memory", 100_000, 0, "/memfd:stdin"},
		{"most that memory takes", stdinMemory, stdinsMemory - stdinMemory, "/memfd:stdin"},
		{"too large", stdinMemory + 1, 0, "fed"},
		{"no memory left", 100_000, stdinsMemory - 99_999, "fed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			content := bytes.Repeat([]byte("0123456789abcdef"), tt.size/16+1)[:tt.size]
			ref, _, err := blobs.Put(bytes.NewReader(content), "")
			if err != nil {
				t.Fatal(err)
			}
			var memory budget
			memory.used.Store(tt.used)
			for _, reads := range []bool{true, false} {
				s, err := openStdin(&api.Exec{StdinRef: ref}, blobs, &memory)
				if err != nil {
					t.Fatal(err)
				}
				var from io.Reader = s.file
				if s.isFed() != (tt.is == "fed") {
					t.Fatalf("it is fed: %t", s.isFed())
				}
				if s.isFed() {
					r, w, err := os.Pipe()
					if err != nil {
						t.Fatal(err)
					}
					defer r.Close()
					from = r
					s.feed(w, func() {})
				} else if to, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", s.file.Fd())); err != nil || !strings.HasPrefix(to, tt.is) {
					t.Errorf("stdin is %s, %v", to, err)
				}
				if reads {
					got, err := io.ReadAll(from)
					if err != nil || !bytes.Equal(got, content) {
						t.Errorf("%d bytes, %v", len(got), err)
					}
				}
				if err := s.end(); err != nil {
					t.Errorf("end: %v", err)
				}
				if used := memory.used.Load(); used != tt.used {
					t.Errorf("%d bytes are used, %d before", used, tt.used)
				}
			}
		})
	}
}

// Content that is not what its name says is no input: before the command starts, or where
// it was fed, in its result.
func TestStdinOfDamagedBlobs(t *testing.T) {
	b := start(t)
	defer b.stop()
	id := b.session()
	for size, command := range map[int]string{1000: "true", stdinMemory + 1: "swallow"} {
		ref, _, err := b.blobs.Put(bytes.NewReader(pattern(size)), "")
		if err != nil {
			t.Fatal(err)
		}
		digest, err := blob.Digest(ref)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(b.state, "blobs", digest[:2], digest)
		if err := errors.Join(os.Chmod(name, 0o600), os.Truncate(name, int64(size-1)), os.Truncate(name, int64(size))); err != nil {
			t.Fatal(err)
		}
		if r := b.execute(api.Exec{SessionID: id, Argv: []string{command}, StdinRef: ref}); r.Outcome != api.OutcomeFaulted || r.ErrorCode != api.CodeBlobFailed {
			t.Errorf("%d bytes: %s %s %s", size, r.Outcome, r.ErrorCode, r.ErrorMessage)
		}
	}
}
