package supervisor

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/stockade-dev/stockade/internal/blob"
	"github.com/stockade-dev/stockade/internal/spool"
	"github.com/stockade-dev/stockade/supervisor/api"
)

func store(t *testing.T) *blob.Store {
	t.Helper()
	blobs, err := blob.Open(t.TempDir() + "/blobs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { blobs.Close() })
	return blobs
}

func stores(t *testing.T) (*spool.Store, *blob.Store) {
	t.Helper()
	blobs := store(t)
	logs, err := spool.Open(t.TempDir() + "/spool")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { logs.Close() })
	return logs, blobs
}

// R058–R064, R062: the form of an output is a function of its bytes and the limits, not
// of how the bytes arrived; what is returned are the bytes.
func TestFormIsAFunction(t *testing.T) {
	logs, blobs := stores(t)
	count := 0
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
			count++
			log := logs.Create(fmt.Sprint("x-", count), limit)
			var from io.Reader = bytes.NewReader(content)
			if i == 1 {
				from = &pieces{content, rapid.IntRange(1, len(content)+1).Draw(t, "chunk")}
			}
			if err := log.Copy(spool.Stdout, from); err != nil {
				t.Fatal(err)
			}
			log.Seal()
			out, over, err := materialize(log, spool.Stdout, f, blobs)
			log.Close()
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

// pieces gives its bytes a few at a time.
type pieces struct {
	rest []byte
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.rest[:min(p.size, len(p.rest))])
	p.rest = p.rest[n:]
	return n, nil
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
