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
		{"too large", stdinMemory + 1, 0, "pipe:"},
		{"no memory left", 100_000, stdinsMemory - 99_999, "pipe:"},
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
				to, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", s.file.Fd()))
				if err != nil || !strings.HasPrefix(to, tt.is) {
					t.Errorf("stdin is %s, %v", to, err)
				}
				s.feed()
				if reads {
					got, err := io.ReadAll(s.file)
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
	for _, size := range []int{1000, stdinMemory + 1} {
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
		if r := b.execute(api.Exec{SessionID: id, Argv: []string{"true"}, StdinRef: ref}); r.Outcome != api.OutcomeFaulted || r.ErrorCode != api.CodeBlobFailed {
			t.Errorf("%d bytes: %s %s %s", size, r.Outcome, r.ErrorCode, r.ErrorMessage)
		}
	}
}
