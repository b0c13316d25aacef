package supervisor

import (
	"bytes"
	"context"
	"io"
	"os"
	"sync"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/stockade-dev/stockade/internal/blob"
	"github.com/stockade-dev/stockade/supervisor/api"
)

func store(t *testing.T) *blob.Store {
	t.Helper()
	s, err := blob.Open(t.TempDir() + "/blobs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// R058–R064, R062: the form of an output is a function of its bytes and the limits, not
// of how the bytes arrived; what is returned are the bytes.
func TestFormIsAFunction(t *testing.T) {
	blobs := store(t)
	rapid.Check(t, func(t *rapid.T) {
		content := rapid.OneOf(
			rapid.SliceOfN(rapid.Byte(), 0, 300),
			rapid.Map(rapid.StringN(0, 100, 300), func(s string) []byte { return []byte(s) }),
		).Draw(t, "content")
		if rapid.Bool().Draw(t, "long") {
			content = bytes.Repeat(content, 400)
		}
		limit := rapid.Int64Range(1, 1<<17).Draw(t, "limit")
		f := outputForm{
			inline:  rapid.Int64Range(0, 1<<17).Draw(t, "inline"),
			preview: rapid.Int64Range(0, 600).Draw(t, "preview"),
			require: rapid.Bool().Draw(t, "require"),
			blob:    rapid.Bool().Draw(t, "blob"),
		}
		var previous *api.Output
		for i := range 2 {
			s := &stream{name: "stdout", limit: limit, store: blobs, wake: &wake{}}
			for rest := content; len(rest) > 0; {
				n := len(rest)
				if i == 1 {
					n = rapid.IntRange(1, len(rest)).Draw(t, "chunk")
				}
				s.Write(rest[:n])
				rest = rest[n:]
			}
			out, over, err := s.seal(f)
			if err != nil {
				t.Fatal(err)
			}
			kept := content[:min(int64(len(content)), limit)]
			check(t, blobs, kept, int64(len(content)), f, out, over)
			if i == 1 && encodeOutput(t, out) != encodeOutput(t, previous) {
				t.Fatalf("%s, and in other chunks %s", encodeOutput(t, previous), encodeOutput(t, out))
			}
			previous = out
		}
	})
}

func encodeOutput(t *rapid.T, o *api.Output) string {
	b, err := api.Encode(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// check says what the contract says, in other words than the code.
func check(t *rapid.T, blobs *blob.Store, kept []byte, total int64, f outputForm, out *api.Output, over *api.Overflow) {
	if len(kept) == 0 {
		if out != nil || over != nil {
			t.Fatalf("empty output is %+v %+v", out, over)
		}
		return
	}
	fits := int64(len(kept)) <= f.inline && !f.blob
	if !fits && f.require && !f.blob {
		if out != nil || over == nil || over.SizeBytes != total || over.LimitBytes != f.inline {
			t.Fatalf("too large, and %+v %+v", out, over)
		}
		return
	}
	arms := 0
	var got []byte
	if out.InlineText != nil {
		arms++
		got = []byte(out.InlineText.Text)
	}
	if out.InlineBytes != nil {
		arms++
		got = out.InlineBytes.Bytes
	}
	if out.Blob != nil {
		arms++
		r, size, err := blobs.Reader(out.Blob.BlobRef)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if got, err = io.ReadAll(r); err != nil || size != out.Blob.SizeBytes {
			t.Fatalf("%v, %d bytes, not %d", err, size, out.Blob.SizeBytes)
		}
		if want := kept[:min(int64(len(kept)), f.preview)]; !bytes.Equal(out.Blob.PreviewBytes, want) {
			t.Fatalf("preview %q, not %q", out.Blob.PreviewBytes, want)
		}
	}
	switch {
	case arms != 1 || !bytes.Equal(got, kept):
		t.Fatalf("%d arms with %d bytes, not %d", arms, len(got), len(kept))
	case fits != (out.Blob == nil):
		t.Fatalf("fits is %t, and the output %+v", fits, out)
	case fits && utf8.Valid(kept) != (out.InlineText != nil):
		t.Fatalf("valid UTF-8 is %t, and the output %+v", utf8.Valid(kept), out)
	case out.Truncated != (total > int64(len(kept))) || out.Truncated && out.TotalBytes != total:
		t.Fatalf("truncated is %t, total %d of %d", out.Truncated, out.TotalBytes, total)
	}
}

// R154, R157, C16: any number of followers, from any offset, get every later byte once,
// whatever becomes of the stream meanwhile; they hold nothing up.
func TestFollowers(t *testing.T) {
	blobs := store(t)
	content := pattern(1 << 20)
	for _, f := range []outputForm{{inline: 2 << 20}, {inline: 10}, {inline: 10, require: true}} {
		x := &execution{id: "x", wake: &wake{}}
		x.stdout = &stream{name: "stdout", limit: 1 << 30, store: blobs, wake: x.wake}
		x.stderr = &stream{name: "stderr", limit: 1 << 30, store: blobs, wake: x.wake}
		var readers sync.WaitGroup
		for i := range 8 {
			from := int64(i * 1000)
			follower := x.follow("i", api.Offsets{Stdout: from})
			readers.Go(func() {
				var got []byte
				follower.run(context.Background(), func(e api.Event) {
					if e.Offset != from+int64(len(got)) {
						t.Errorf("offset %d after %d bytes", e.Offset, len(got))
					}
					got = append(got, e.Bytes...)
				})
				if !bytes.Equal(got, content[from:]) {
					t.Errorf("from %d: %d bytes", from, len(got))
				}
			})
		}
		never := x.follow("i", api.Offsets{}) // reads nothing, and is no reason to wait
		if n, err := x.stdout.ReadFrom(bytes.NewReader(content)); n != 1<<20 || err != nil {
			t.Error(n, err)
		}
		if _, _, err := x.stdout.seal(f); err != nil {
			t.Error(err)
		}
		x.stderr.seal(f)
		readers.Wait()
		never.leave()
		if x.stdout.final != nil || x.follow("i", api.Offsets{}) != nil {
			t.Error("a sealed stream is still followed")
		}
	}
}

// Small output costs no file.
func TestSmallOutputStaysInMemory(t *testing.T) {
	dir := t.TempDir() + "/blobs"
	blobs, err := blob.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer blobs.Close()
	s := &stream{name: "stdout", limit: 1 << 20, store: blobs, wake: &wake{}}
	s.Write(pattern(10000))
	incoming, err := os.ReadDir(dir + "/incoming")
	if err != nil || len(incoming) != 0 {
		t.Errorf("%v %v", incoming, err)
	}
	s.seal(outputForm{inline: 16384})
}

func BenchmarkFlood(b *testing.B) {
	blobs, err := blob.Open(b.TempDir() + "/blobs")
	if err != nil {
		b.Fatal(err)
	}
	defer blobs.Close()
	chunk := pattern(64 << 10)
	s := &stream{name: "stdout", limit: 1 << 40, store: blobs, wake: &wake{}}
	defer s.seal(outputForm{inline: 1, require: true})
	b.SetBytes(int64(len(chunk)))
	for b.Loop() {
		s.Write(chunk)
	}
}
