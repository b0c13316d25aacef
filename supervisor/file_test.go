package supervisor

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox/file"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// filePolicy grants file tools, and lets each be used whose first path is not called forbidden.
func filePolicy() fstest.MapFS {
	files := maps.Clone(testPolicy)
	files["open.rego"] = &fstest.MapFile{Data: bytes.Replace(testPolicy["open.rego"].Data, []byte(`"exec": {`),
		[]byte(`"fs": {"ops": ["read", "write", "patch", "stat"], "write_roots": ["/src/"], "max_write_bytes": 100000},
	"exec": {`), 1)}
	files["fs.rego"] = &fstest.MapFile{Data: []byte(`package stockade.fs
default decision := {"allow": false, "deny": [{"code": "no_name"}]}
decision := {"allow": true, "deny": [], "warn": []} if not endswith(input.file.paths[0].resolved, "forbidden")
decision := {"allow": false, "deny": [{"code": "our.forbidden", "subject": input.file.paths[0].resolved}], "warn": []} if endswith(input.file.paths[0].resolved, "forbidden")
`)}
	return files
}

// fileBench is a bench whose sessions share a directory as their root.
func fileBench(t *testing.T) *bench {
	b := startWith(t, filePolicy())
	b.fake.files = t.TempDir()
	if err := os.MkdirAll(filepath.Join(b.fake.files, "src"), 0o755); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) tool(session string, ask file.Request) *api.Receipt {
	b.t.Helper()
	return b.do(api.Request{Op: api.Op(ask.Op), File: &api.FileTool{SessionID: session, Request: ask}})
}

func write(name, text string) file.Request {
	return file.Request{Op: file.OpWrite, Write: &file.Write{Target: file.Target{Path: name}, Content: file.Content{InlineText: &file.InlineText{Text: text}}}}
}

func read(name string) file.Request {
	return file.Request{Op: file.OpRead, Read: &file.Read{Target: file.Target{Path: name}}}
}

// A change is an operation like every other: judged by what its path leads to, recorded before and after, once under its key.
func TestFileTool(t *testing.T) {
	b := fileBench(t)
	defer b.stop()
	id := b.session()
	if n := b.fake.called("start files"); n != 0 {
		t.Errorf("%d workers before one is needed", n)
	}
	r := b.tool(id, write("/src/a", "one"))
	sum := sha256.Sum256([]byte("one"))
	want := &file.Change{Path: "/src/a", Kind: "add", After: hex.EncodeToString(sum[:]), SizeBytes: 3}
	if r.Outcome != api.OutcomeOK || r.Payload.File == nil || r.Payload.File.Write == nil {
		t.Fatalf("%+v", r)
	}
	if diff := cmp.Diff(want, r.Payload.File.Write.Change); diff != "" {
		t.Error(diff)
	}
	keyed := func() *api.Receipt {
		return b.do(api.Request{Op: api.OpFileWrite, Key: "once", File: &api.FileTool{SessionID: id, Request: write("/src/a", "two")}})
	}
	first := keyed()
	b.tool(id, write("/src/a", "three"))
	if again := keyed(); again.IntentID != first.IntentID {
		t.Error("it happened twice")
	}
	if r := b.tool(id, read("/src/a")); r.Payload.File.Read.Content.InlineText.Text != "three" {
		t.Errorf("%+v", r.Payload.File.Read)
	}
	if n := b.fake.called("start files"); n != 1 {
		t.Errorf("%d workers", n)
	}
}

// What a tool says no to is an answer; what policy says no to is a denial, and so is what nobody granted; what is wrong is a fault.
func TestFileToolSaysNo(t *testing.T) {
	b := fileBench(t)
	defer b.stop()
	id := b.session()
	os.Symlink("/src/forbidden", filepath.Join(b.fake.files, "src", "alias"))
	edit := file.Request{Op: file.OpEdit, Edit: &file.Edit{Target: file.Target{Path: "/src/a"}, OldString: "x"}}
	for _, row := range []struct {
		name    string
		ask     file.Request
		outcome api.Outcome
		status  file.Status
		code    api.Code
	}{
		{"missing", read("/src/missing"), api.OutcomeOK, file.NotFound, "path_not_found"},
		{"outside of where it may write", write("/elsewhere", "x"), api.OutcomeOK, file.Forbidden, "path_not_allowed"},
		{"by policy", write("/src/forbidden", "x"), api.OutcomeDenied, file.Error, "our.forbidden"},
		{"by policy, over a link", write("/src/alias", "x"), api.OutcomeDenied, file.Error, "our.forbidden"},
		{"not granted", edit, api.OutcomeDenied, file.Error, "fs_op_not_allowed"},
		{"too large", write("/src/a", strings.Repeat("x", 100001)), api.OutcomeOK, file.Forbidden, "max_write_bytes_exceeded"},
		{"no path", read(""), api.OutcomeFaulted, file.Error, "invalid_path"},
		{"no such blob", file.Request{Op: file.OpWrite, Write: &file.Write{Target: file.Target{Path: "/src/a"},
			Content: file.Content{BlobRef: &file.BlobRef{BlobRef: "sha256:" + strings.Repeat("0", 64)}}}}, api.OutcomeFaulted, file.Error, "not_found"},
	} {
		r := b.tool(id, row.ask)
		if r.Outcome != row.outcome || r.ErrorCode != row.code || r.Payload.File == nil || r.Payload.File.Outcome().Status != row.status {
			t.Errorf("%s: %s %s %s: %+v", row.name, r.Outcome, r.ErrorCode, r.ErrorMessage, r.Payload.File)
		}
	}
	if list, _ := filepath.Glob(filepath.Join(b.fake.files, "*", "*")); len(list) != 1 { // the link
		t.Errorf("%v", list)
	}
	if r := b.tool("s-unknown", read("/src/a")); r.ErrorCode != api.CodeSessionNotFound {
		t.Errorf("%+v", r)
	}
	b.close(id)
	if r := b.tool(id, read("/src/a")); r.ErrorCode != api.CodeSessionClosed {
		t.Errorf("%+v", r)
	}
}

// Without a grant nothing is started inside to look.
func TestFileToolWithoutGrant(t *testing.T) {
	policy := filePolicy()
	policy["open.rego"] = testPolicy["open.rego"]
	b := startWith(t, policy)
	defer b.stop()
	if r := b.tool(b.session(), read("/a")); r.Outcome != api.OutcomeDenied || r.ErrorCode != "fs_op_not_allowed" {
		t.Errorf("%+v", r)
	}
	if n := b.fake.called("start files"); n != 0 {
		t.Errorf("%d workers", n)
	}
}

// What is large comes and goes as a blob, and a worker that has ended is started again.
func TestFileToolBlobs(t *testing.T) {
	b := fileBench(t)
	defer b.stop()
	id := b.session()
	text := strings.Repeat("line\n", 10000)
	ref, _, err := b.blobs.Put(strings.NewReader(text), "")
	if err != nil {
		t.Fatal(err)
	}
	ask := file.Request{Op: file.OpWrite, Write: &file.Write{Target: file.Target{Path: "/src/large"}, Content: file.Content{BlobRef: &file.BlobRef{BlobRef: ref}}}}
	if r := b.tool(id, ask); r.Payload.File.Write.Status != file.OK {
		t.Fatalf("%+v", r)
	}
	if n := b.stdins.used.Load(); n != 0 {
		t.Errorf("%d bytes are held", n)
	}
	ses, _ := b.registry.find(alice, id)
	b.fake.killFiles()
	<-ses.files.worker.over
	r := b.tool(id, read("/src/large"))
	if r.Outcome != api.OutcomeOK || r.Payload.File.Blob() == nil || r.Payload.File.Blob().BlobRef != ref {
		t.Fatalf("%+v", r)
	}
	if n := b.fake.called("start files"); n != 2 {
		t.Errorf("%d workers", n)
	}
}

// killFiles ends every file worker.
func (f *fake) killFiles() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.execs {
		if p.exec.Files {
			p.kill.Do(func() { close(p.killed) })
		}
	}
}

// What policy was asked is rebuilt from the records, byte for byte.
func TestFileDecisionIsRecorded(t *testing.T) {
	b := fileBench(t)
	r := b.tool(b.session(), write("/src/forbidden", "x"))
	b.stop()
	got, err := ReadDecision(b.state, r.IntentID)
	if err != nil {
		t.Fatal(err)
	}
	want := &rego.File{Op: "write", Bytes: 1, Paths: []rego.FilePath{{Path: "/src/forbidden", Resolved: "/src/forbidden", Write: true}}}
	if diff := cmp.Diff(want, got.Input.File); diff != "" {
		t.Error(diff)
	}
}

// The rules of a worker are the grant's, and absent is not empty.
func TestFileCaps(t *testing.T) {
	caps := fileCaps(&api.Grant{
		FS:     &api.GrantFS{Ops: []string{"read"}, Roots: []string{"/w/", "/"}, MaxReadBytes: 5},
		Mounts: []api.GrantMount{{GuestPath: "/w", Mode: "rw", Protect: []string{".git/hooks"}}},
	})
	five := int64(5)
	want := file.Caps{
		Ops: []file.Class{"read"}, Roots: []string{"/w", "/"}, MaxReadBytes: &five, PatchFormats: []string{"v4a"}, ProtectedPaths: []string{"/w/.git/hooks"},
	}
	if diff := cmp.Diff(want, caps); diff != "" {
		t.Error(diff)
	}
	if code, msg := caps.Fault(); msg != "" {
		t.Error(code, msg)
	}
}
