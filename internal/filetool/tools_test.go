package filetool

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stockade-dev/stockade/sandbox/file"
)

// box is a tree with Tools in it. The root of the tree is DIR/root, so that a test can put what must not be
// reached beside it.
type box struct {
	*Tools
	t     testing.TB
	dir   string
	blobs map[string][]byte
	named []string // by what stands in for ripgrep; nil is that it is gone
}

func newBox(t testing.TB, caps file.Caps, change ...func(*Config)) *box {
	t.Helper()
	return newBoxIn(t, t.TempDir(), caps, change...)
}

// newFastBox is a box in memory, for tests that sync more than they look.
func newFastBox(t testing.TB, caps file.Caps, change ...func(*Config)) *box {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "filetool-")
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return newBoxIn(t, dir, caps, change...)
}

func newBoxIn(t testing.TB, dir string, caps file.Caps, change ...func(*Config)) *box {
	t.Helper()
	b := &box{t: t, dir: filepath.Join(dir, "root"), blobs: map[string][]byte{}}
	if err := os.MkdirAll(filepath.Join(b.dir, "work"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.open(caps, change...)
	return b
}

func (b *box) open(caps file.Caps, change ...func(*Config)) {
	b.t.Helper()
	root, err := os.Open(b.dir)
	if err != nil {
		b.t.Fatal(err)
	}
	defer root.Close()
	c := Config{Root: root, Workdir: "/work", Caps: caps,
		Store: func(r io.Reader) (string, int64, error) {
			data, err := io.ReadAll(r)
			if err != nil {
				return "", 0, err
			}
			ref := "sha256:" + hash(string(data))
			b.blobs[ref] = data
			return ref, int64(len(data)), nil
		},
		Load: b.load,
	}
	for _, f := range change {
		f(&c)
	}
	if b.Tools, err = Open(c); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { b.Close() })
}

func (b *box) load(ref string) (io.ReadCloser, error) {
	data, ok := b.blobs[ref]
	if !ok {
		return nil, errors.New("no such blob")
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

func hash(s string) string {
	d := sha256.Sum256([]byte(s))
	return hex.EncodeToString(d[:])
}

// file writes a file of the working directory past the tools.
func (b *box) file(name, content string) {
	b.t.Helper()
	at := b.at(name)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(at, []byte(content), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func (b *box) at(name string) string {
	if strings.HasPrefix(name, "/") {
		return b.dir + name
	}
	return filepath.Join(b.dir, "work", name)
}

// content reads a file past the tools; "-" is none.
func (b *box) content(name string) string {
	data, err := os.ReadFile(b.at(name))
	if err != nil {
		return "-"
	}
	return string(data)
}

func (b *box) link(to, name string) {
	b.t.Helper()
	if err := os.Symlink(to, b.at(name)); err != nil {
		b.t.Fatal(err)
	}
}

func (b *box) do(r file.Request) *file.Result { return b.Do(context.Background(), &r) }

func at(path string) file.Target { return file.Target{Path: path} }

func (b *box) readFile(r file.Read) *file.ReadResult {
	return b.do(file.Request{Op: file.OpRead, Read: &r}).Read
}
func (b *box) writeFile(w file.Write) *file.WriteResult {
	return b.do(file.Request{Op: file.OpWrite, Write: &w}).Write
}
func (b *box) editFile(e file.Edit) *file.EditResult {
	return b.do(file.Request{Op: file.OpEdit, Edit: &e}).Edit
}
func (b *box) applyPatch(text string) *file.PatchResult {
	return b.do(file.Request{Op: file.OpPatch, Patch: &file.Patch{Patch: file.PatchText{InlineText: &file.InlineText{Text: text}}}}).Patch
}
func (b *box) grepFor(g file.Grep) *file.GrepResult {
	return b.do(file.Request{Op: file.OpGrep, Grep: &g}).Grep
}
func (b *box) globFor(g file.Glob) *file.GlobResult {
	return b.do(file.Request{Op: file.OpGlob, Glob: &g}).Glob
}

func text(s string) file.Content { return file.Content{InlineText: &file.InlineText{Text: s}} }

// out is an output as a string, with its form before it.
func out(o *file.Output) string {
	switch {
	case o == nil:
		return ""
	case o.InlineText != nil:
		return "text:" + o.InlineText.Text
	case o.InlineBytes != nil:
		return "bytes:" + string(o.InlineBytes.Bytes)
	}
	return "blob:" + o.Blob.BlobRef
}

// want checks the outcome of a result.
func want(t testing.TB, what string, o file.Outcome, status file.Status, code file.Code) {
	t.Helper()
	if o.Status != status || o.Code != code {
		t.Errorf("%s: %s %s (%s), want %s %s", what, o.Status, o.Code, o.Message, status, code)
	}
}
