package filetool

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox/file"
)

// R180–R183, R223, T149: ranges of files.
func TestReadRanges(t *testing.T) {
	b := newBox(t, file.Caps{})
	b.file("f", "one\ntwo\nthré\nfour") // é is two bytes, at 10
	b.file("empty", "")
	b.file("bad", "ab\xffcd")
	b.file("wide", strings.Repeat("é", 10))
	for _, row := range []struct {
		name      string
		ask       file.Read
		want      string
		truncated bool
		code      file.Code
	}{
		{"all", file.Read{Target: at("f")}, "text:one\ntwo\nthré\nfour", false, ""},
		{"offset", file.Read{Target: at("f"), OffsetBytes: 4}, "text:two\nthré\nfour", false, ""},
		{"max", file.Read{Target: at("f"), MaxBytes: ptr(int64(3))}, "text:one", true, ""},
		{"exactly all", file.Read{Target: at("f"), MaxBytes: ptr(int64(18))}, "text:one\ntwo\nthré\nfour", false, ""},
		{"nothing", file.Read{Target: at("f"), MaxBytes: ptr(int64(0))}, "", true, ""},
		{"past the end", file.Read{Target: at("f"), OffsetBytes: 1 << 40}, "", false, ""},
		{"largest offset", file.Read{Target: at("f"), OffsetBytes: 1<<63 - 1}, "", false, ""},
		{"largest range", file.Read{Target: at("f"), OffsetBytes: 1, MaxBytes: ptr(int64(1<<63 - 1))}, "text:ne\ntwo\nthré\nfour", false, ""},
		{"negative", file.Read{Target: at("f"), OffsetBytes: -1}, "", false, file.CodeInvalidParams},
		{"negative max", file.Read{Target: at("f"), MaxBytes: ptr(int64(-1))}, "", false, file.CodeInvalidParams},
		{"end inside a character", file.Read{Target: at("f"), OffsetBytes: 8, MaxBytes: ptr(int64(4))}, "text:thr", true, ""},
		{"begin inside a character", file.Read{Target: at("f"), OffsetBytes: 12}, "bytes:\xa9\nfour", false, ""},
		{"one byte of a character", file.Read{Target: at("wide"), MaxBytes: ptr(int64(1))}, "bytes:\xc3", true, ""},
		{"bytes", file.Read{Target: at("f"), Encoding: "bytes", MaxBytes: ptr(int64(3))}, "bytes:one", true, ""},
		{"not UTF-8", file.Read{Target: at("bad")}, "", false, file.CodeInvalidUTF8},
		{"not UTF-8 as bytes", file.Read{Target: at("bad"), Encoding: "bytes"}, "bytes:ab\xffcd", false, ""},
		{"before the bad byte", file.Read{Target: at("bad"), MaxBytes: ptr(int64(2))}, "text:ab", true, ""},
		{"empty", file.Read{Target: at("empty")}, "", false, ""},
		{"line", file.Read{Target: at("f"), StartLine: 2, MaxLines: 1}, "text:two\n", true, ""},
		{"lines to the end", file.Read{Target: at("f"), StartLine: 3}, "text:thré\nfour", false, ""},
		{"last line", file.Read{Target: at("f"), StartLine: 4, MaxLines: 1}, "text:four", false, ""},
		{"line past the end", file.Read{Target: at("f"), StartLine: 9}, "", false, ""},
		{"lines and max", file.Read{Target: at("f"), StartLine: 2, MaxBytes: ptr(int64(5))}, "text:two\nt", true, ""},
		{"lines and offset", file.Read{Target: at("f"), StartLine: 2, OffsetBytes: 1}, "", false, file.CodeInvalidParams},
		{"encoding", file.Read{Target: at("f"), Encoding: "latin1"}, "", false, file.CodeInvalidEncoding},
		{"output mode", file.Read{Target: at("f"), OutputMode: "inline"}, "", false, file.CodeInvalidOutputMode},
	} {
		r := b.readFile(row.ask)
		status := file.OK
		if row.code != "" {
			status = file.Error
		}
		want(t, row.name, r.Outcome, status, row.code)
		if got := out(r.Content); got != row.want || r.Truncated != row.truncated {
			t.Errorf("%s: %q truncated %v, want %q %v", row.name, got, r.Truncated, row.want, row.truncated)
		}
		if r.Truncated && r.Status == file.OK && row.want != "" && row.ask.Encoding != "bytes" {
			rest := b.readFile(file.Read{Target: row.ask.Target, OffsetBytes: r.NextOffset, Encoding: "bytes"})
			whole := b.content(row.ask.Path)
			if !strings.HasSuffix(whole, strings.TrimPrefix(out(rest.Content), "bytes:")) || int64(len(whole))-r.NextOffset != int64(len(strings.TrimPrefix(out(rest.Content), "bytes:"))) {
				t.Errorf("%s: the rest is %q", row.name, out(rest.Content))
			}
		}
	}
	if r := b.readFile(file.Read{Target: at("f"), MaxBytes: ptr(int64(3))}); *r.SizeBytes != 18 || r.NextOffset != 3 {
		t.Errorf("size %d, next %d", *r.SizeBytes, r.NextOffset)
	}
}

// R058–R065, R069, R101: the form of an output is a function of size and limits.
func TestOutputForms(t *testing.T) {
	b := newBox(t, file.Caps{})
	big := strings.Repeat("x", file.InlineLimit)
	b.file("fits", big)
	b.file("large", big+"y")
	b.file("large-bad", big+"\xff")
	if r := b.readFile(file.Read{Target: at("fits")}); out(r.Content) != "text:"+big {
		t.Errorf("16 KiB: %+v", r.Outcome)
	}
	r := b.readFile(file.Read{Target: at("large")})
	want(t, "large", r.Outcome, file.OK, "")
	if r.Content.Blob == nil || r.Content.Blob.SizeBytes != file.InlineLimit+1 || len(r.Content.Blob.PreviewBytes) != file.PreviewLimit || r.Content.Blob.BlobRef != "sha256:"+r.SHA256 {
		t.Errorf("large: %+v", r.Content)
	}
	r = b.readFile(file.Read{Target: at("large"), OutputMode: "require_inline"})
	want(t, "require_inline", r.Outcome, file.Error, file.CodeInlineTooLarge)
	if r.Content != nil || r.Overflow == nil || r.Overflow.LimitBytes != file.InlineLimit {
		t.Errorf("require_inline: %+v", r)
	}
	want(t, "large, not UTF-8", b.readFile(file.Read{Target: at("large-bad")}).Outcome, file.Error, file.CodeInvalidUTF8)
	r = b.readFile(file.Read{Target: at("large-bad"), Encoding: "bytes"})
	want(t, "large bytes", r.Outcome, file.OK, "")

	b = newBox(t, file.Caps{MaxInlineBytes: ptr(int64(4)), OutputModes: []string{"auto"}})
	b.file("f", "12345")
	if r := b.readFile(file.Read{Target: at("f")}); r.Content == nil || r.Content.Blob == nil {
		t.Errorf("max_inline_bytes: %+v", r)
	}
	if g := b.grepFor(file.Grep{Pattern: "5"}); g.Matches == nil || g.Matches.Blob == nil {
		t.Errorf("grep with max_inline_bytes: %+v", g)
	}
	want(t, "mode not allowed", b.readFile(file.Read{Target: at("f"), OutputMode: "require_inline"}).Outcome, file.Forbidden, file.CodeOutputNotAllowed)
}

// R181, R184, R186, R187, R195, R198, R218–R220, T123, T124: what is at the path, by every operation.
func TestKindsOfFiles(t *testing.T) {
	b := newBox(t, file.Caps{})
	b.file("dir/f", "x\n")
	b.file("bad", "\xff")
	b.file("f", "x\n")
	if err := unix.Mkfifo(b.at("fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(b.at("null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		t.Skip("devices cannot be made here: ", err)
	}
	if fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0); err == nil {
		defer unix.Close(fd)
		old, _ := os.Getwd()
		os.Chdir(b.at("."))
		err := unix.Bind(fd, &unix.SockaddrUnix{Name: "sock"})
		os.Chdir(old)
		if err != nil {
			t.Fatal(err)
		}
	}
	type answer struct {
		status file.Status
		code   file.Code
	}
	ok := answer{file.OK, ""}
	special := answer{file.Error, file.CodeNotRegular}
	missing := answer{file.NotFound, file.CodePathNotFound}
	ops := []struct {
		name string
		do   func(path string) file.Outcome
	}{
		{"read", func(p string) file.Outcome { return b.readFile(file.Read{Target: at(p)}).Outcome }},
		{"write", func(p string) file.Outcome {
			return b.writeFile(file.Write{Target: at(p), Content: text("new\n")}).Outcome
		}},
		{"create", func(p string) file.Outcome {
			return b.writeFile(file.Write{Target: at(p), Content: text("new\n"), Mode: "create_new"}).Outcome
		}},
		{"edit", func(p string) file.Outcome {
			return b.editFile(file.Edit{Target: at(p), OldString: "x", NewString: "x"}).Outcome
		}},
		{"grep", func(p string) file.Outcome { return b.grepFor(file.Grep{Target: at(p), Pattern: "x"}).Outcome }},
		{"glob", func(p string) file.Outcome { return b.globFor(file.Glob{Target: at(p), Pattern: "*"}).Outcome }},
		{"list", func(p string) file.Outcome {
			return b.do(file.Request{Op: file.OpList, List: &file.List{Target: at(p)}}).List.Outcome
		}},
		{"stat", func(p string) file.Outcome {
			return b.do(file.Request{Op: file.OpStat, Stat: &file.Stat{Target: at(p)}}).Stat.Outcome
		}},
		{"exists", func(p string) file.Outcome {
			return b.do(file.Request{Op: file.OpExists, Stat: &file.Stat{Target: at(p)}}).Stat.Outcome
		}},
	}
	notDir := answer{file.Error, file.CodeNotDirectory}
	rows := map[string][]answer{
		// read, write, create, edit, grep, glob, list, stat, exists
		"dir":     {{file.IsDirectory, file.CodeIsDirectory}, {file.Error, file.CodeIsDirectory}, {file.Error, file.CodeIsDirectory}, {file.Error, file.CodeIsDirectory}, ok, ok, ok, ok, ok},
		"fifo":    {special, special, special, special, special, notDir, notDir, ok, ok},
		"null":    {special, special, special, special, special, notDir, notDir, ok, ok},
		"sock":    {special, special, special, special, special, notDir, notDir, ok, ok},
		"missing": {missing, ok, ok, missing, missing, missing, missing, missing, ok},
		"no/such": {missing, {file.Error, file.CodeParentMissing}, {file.Error, file.CodeParentMissing}, missing, missing, missing, missing, missing, ok},
		"f/below": {missing, {file.Error, file.CodePathNotFound}, {file.Error, file.CodePathNotFound}, missing, missing, missing, missing, missing, ok},
		"bad":     {{file.Error, file.CodeInvalidUTF8}, ok, {file.Conflict, file.CodeFileExists}, {file.Error, file.CodeInvalidUTF8}, ok, notDir, notDir, ok, ok},
		"f":       {ok, ok, {file.Conflict, file.CodeFileExists}, ok, ok, notDir, notDir, ok, ok},
	}
	for path, answers := range rows {
		for i, op := range ops {
			os.Remove(b.at("missing"))
			b.file("f", "x\n")
			b.file("bad", "\xff")
			start := time.Now()
			o := op.do(path)
			if o.Status != answers[i].status || o.Code != answers[i].code {
				t.Errorf("%s %s: %s %s (%s), want %s %s", op.name, path, o.Status, o.Code, o.Message, answers[i].status, answers[i].code)
			}
			if d := time.Since(start); d > 2*time.Second {
				t.Errorf("%s %s took %v", op.name, path, d)
			}
		}
	}
	for _, name := range []string{"fifo", "null", "sock", "dir"} {
		p := b.applyPatch("*** Begin Patch\n*** Delete File: " + name + "\n*** End Patch\n")
		if p.Status == file.OK {
			t.Errorf("a patch has deleted %s", name)
		}
	}
}

// What is wrong with a request, or with who is to serve it, whatever the files are (contract table 3.3).
func TestRefusals(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	b := newBox(t, file.Caps{}, func(c *Config) { c.Runtime.Results, c.Runtime.ReadBytes = 3, 100 })
	b.file("f", "x\n")
	b.file("large", strings.Repeat("x\n", file.InlineLimit))
	patch := func(p file.Patch) file.Request { return file.Request{Op: file.OpPatch, Patch: &p} }
	inline := file.PatchText{InlineText: &file.InlineText{Text: "x"}}
	for _, row := range []struct {
		name string
		ctx  context.Context
		ask  file.Request
		want file.Status
		code file.Code
	}{
		{"no arm", t.Context(), patch(file.Patch{}), file.Error, file.CodeInvalidPatch},
		{"two arms", t.Context(), patch(file.Patch{Patch: file.PatchText{InlineText: inline.InlineText, BlobRef: &file.BlobRef{BlobRef: "sha256:" + hash("")}}}), file.Error, file.CodeInvalidPatch},
		{"unknown format", t.Context(), patch(file.Patch{Patch: inline, Format: "ed"}), file.Error, file.CodePatchFormat},
		{"patch that is no blob", t.Context(), patch(file.Patch{Patch: file.PatchText{BlobRef: &file.BlobRef{BlobRef: "sha256:" + hash("none")}}}), file.Error, file.CodeInvalidBlobRef},
		{"stat of no path", t.Context(), file.Request{Op: file.OpStat, Stat: &file.Stat{}}, file.Error, file.CodeInvalidPath},
		{"exists of no path", t.Context(), file.Request{Op: file.OpExists, Stat: &file.Stat{}}, file.Error, file.CodeInvalidPath},
		{"remove of no path", t.Context(), file.Request{Op: file.OpRemove, Remove: &file.Remove{}}, file.Error, file.CodeInvalidPath},
		{"mkdir below a file", t.Context(), file.Request{Op: file.OpMkdir, Mkdir: &file.Mkdir{Target: at("f/d")}}, file.NotFound, file.CodePathNotFound},
		{"nobody waits", canceled, file.Request{Op: file.OpWrite, Write: &file.Write{Target: at("new"), Content: text("x")}}, file.Error, file.CodeCanceled},
		{"nobody waits for a search", canceled, file.Request{Op: file.OpGrep, Grep: &file.Grep{Pattern: "x"}}, file.Error, file.CodeCanceled},
	} {
		if o := b.Do(row.ctx, &row.ask).Outcome(); o.Status != row.want || o.Code != row.code {
			t.Errorf("%s: %s %s (%s), want %s %s", row.name, o.Status, o.Code, o.Message, row.want, row.code)
		}
	}
	if b.content("new") != "-" {
		t.Error("what nobody waits for has taken place")
	}
	// C18: a ceiling of the machine is told as one.
	if r := b.readFile(file.Read{Target: at("large"), MaxBytes: ptr(int64(200))}); len(r.Clamped) != 1 || r.Clamped[0] != (file.Clamp{Field: "max_bytes", Requested: 200, Effective: 100, Source: "runtime"}) || !r.Truncated {
		t.Errorf("%+v", r)
	}
	for name, o := range map[string]file.Outcome{
		"grep": b.grepFor(file.Grep{Pattern: "x", MaxResults: ptr(int64(4))}).Outcome, "glob": b.globFor(file.Glob{Pattern: "*", MaxResults: ptr(int64(4))}).Outcome,
		"list": b.do(file.Request{Op: file.OpList, List: &file.List{MaxResults: ptr(int64(4))}}).List.Outcome,
	} {
		if len(o.Clamped) != 1 || o.Clamped[0] != (file.Clamp{Field: "max_results", Requested: 4, Effective: 3, Source: "runtime"}) {
			t.Errorf("%s: %+v", name, o)
		}
	}
	// Without a store, or with one that is full, a large output is an error, and no output.
	for name, store := range map[string]func(io.Reader) (string, int64, error){"none": nil, "full": func(io.Reader) (string, int64, error) { return "", 0, unix.ENOSPC }} {
		b := newBox(t, file.Caps{}, func(c *Config) { c.Store = store })
		b.file("large", strings.Repeat("x\n", file.InlineLimit))
		r := b.readFile(file.Read{Target: at("large")})
		want(t, name, r.Outcome, file.Error, file.CodeStoreFailed)
		if r.Content != nil {
			t.Errorf("%s: %+v", name, r.Content)
		}
	}
}

// R207, R213, R217, R220, table 3.4: what is not said is a hundred, of what is there in all.
func TestDefaults(t *testing.T) {
	b := newFastBox(t, file.Caps{})
	for i := range 150 {
		b.file(fmt.Sprintf("d/%03d", i), "hit\n")
	}
	g := b.grepFor(file.Grep{Pattern: "hit"})
	gl := b.globFor(file.Glob{Pattern: "**"})
	l := b.do(file.Request{Op: file.OpList, List: &file.List{Target: at("d")}}).List
	for name, row := range map[string]struct {
		out       *file.Output
		count     *int64
		truncated bool
	}{"grep": {g.Matches, g.MatchCount, g.Truncated}, "glob": {gl.Paths, gl.Count, gl.Truncated}, "list": {l.Entries, l.Count, l.Truncated}} {
		if n := strings.Count(whole(b, row.out), "\n"); n != 100 || *row.count != 150 || !row.truncated {
			t.Errorf("%s: %d of %d, truncated %v", name, n, *row.count, row.truncated)
		}
	}
}

// R114, rules 1 and 2 of S3: each path of a patch is judged, whichever way it comes into it, and none of it takes place.
func TestEachPathOfAPatch(t *testing.T) {
	ways := map[string]string{
		"add":       "*** Add File: PATH/new\n+x\n",
		"update":    "*** Update File: PATH/f\n@@\n-old\n+new\n",
		"delete":    "*** Delete File: PATH/f\n",
		"move from": "*** Update File: PATH/f\n*** Move to: d/moved\n@@\n-old\n+new\n",
		"move to":   "*** Update File: d/g\n*** Move to: PATH/moved\n@@\n-old\n+new\n",
	}
	for name, row := range map[string]struct {
		caps file.Caps
		at   string
		code file.Code
	}{
		"another root":       {file.Caps{Roots: []string{"/work/d"}}, "other", file.CodePathForbidden},
		"a twin of the root": {file.Caps{Roots: []string{"/work/d"}}, "d-evil", file.CodePathForbidden},
		"up and out":         {file.Caps{Roots: []string{"/work/d"}}, "d/../other", file.CodePathForbidden},
		"absolute":           {file.Caps{Roots: []string{"/work/d"}}, "/work/other", file.CodePathForbidden},
		"over a link":        {file.Caps{Roots: []string{"/work/d"}}, "d/out", file.CodePathForbidden},
		"over a link, deny":  {file.Caps{FollowSymlinks: file.FollowDeny}, "d/in", file.CodePathForbidden},
		"where it reads":     {file.Caps{WriteRoots: []string{"/work/d"}}, "other", file.CodePathForbidden},
		"protected":          {file.Caps{ProtectedPaths: []string{"/work/other"}}, "other", file.CodeProtected},
		"control":            {file.Caps{}, "other", ""},
		"in the way of what is protected and missing": {file.Caps{ProtectedPaths: []string{"/work/other/new/x", "/work/other/f/x", "/work/other/moved/x"}}, "other", file.CodeProtected},
	} {
		for way, part := range ways {
			b := newFastBox(t, row.caps)
			b.fill(map[string]string{"d/f": "old\n", "d/g": "old\n", "d/sub/f": "old\n", "other/f": "old\n", "d-evil/f": "old\n"})
			b.link("../other", "d/out")
			b.link("sub", "d/in")
			before := b.state()
			p := b.applyPatch("*** Begin Patch\n*** Add File: d/first\n+x\n" + strings.ReplaceAll(part, "PATH", row.at) + "*** End Patch\n")
			if row.code == "" {
				want(t, name+", "+way, p.Outcome, file.OK, "")
				continue
			}
			want(t, name+", "+way, p.Outcome, file.Forbidden, row.code)
			if d := difference(b.state(), before); d != "" {
				t.Errorf("%s, %s: %s", name, way, d)
			}
		}
	}
	// R205: the errors are bounded.
	b := newFastBox(t, file.Caps{})
	var many strings.Builder
	for i := range 40 {
		fmt.Fprintf(&many, "*** Delete File: none%d\n", i)
	}
	if p := b.applyPatch("*** Begin Patch\n" + many.String() + "*** End Patch\n"); p.Status != file.NotFound || len(p.Errors) != maxErrors {
		t.Errorf("%d errors: %+v", len(p.Errors), p.Outcome)
	}
}

// R185–R189, R223, T133, T136: writes.
func TestWrites(t *testing.T) {
	b := newBox(t, file.Caps{})
	w := b.writeFile(file.Write{Target: at("a/b/c"), Content: text("1")})
	want(t, "no parent", w.Outcome, file.Error, file.CodeParentMissing)
	if b.content("a") != "-" || w.Created != nil {
		t.Error("a refused write has made something")
	}
	w = b.writeFile(file.Write{Target: at("a/b/c"), Content: text("1"), CreateParents: true, Mode: "create_new"})
	want(t, "parents", w.Outcome, file.OK, "")
	w = b.writeFile(file.Write{Target: at("a/b/c"), Content: text("2"), Mode: "create_new"})
	want(t, "create_new", w.Outcome, file.Conflict, file.CodeFileExists)
	w = b.writeFile(file.Write{Target: at("a/b/c"), Content: text("2"), ExpectedSHA256: hash("0")})
	want(t, "expected", w.Outcome, file.Conflict, file.CodeHashMismatch)
	w = b.writeFile(file.Write{Target: at("a/b/c"), Content: text("2"), ExpectedSHA256: "absent"})
	want(t, "expected absent", w.Outcome, file.Conflict, file.CodeFileExists)
	w = b.writeFile(file.Write{Target: at("none"), Content: text("2"), ExpectedSHA256: hash("0")})
	want(t, "expected, nothing there", w.Outcome, file.Conflict, file.CodeHashMismatch)
	w = b.writeFile(file.Write{Target: at("a/b/c"), Content: text("2"), ExpectedSHA256: hash("1")})
	want(t, "as expected", w.Outcome, file.OK, "")
	if *w.Created || w.Change.Before != hash("1") || w.Change.After != hash("2") {
		t.Errorf("%+v", w.Change)
	}
	b.blobs["sha256:"+hash("blob")] = []byte("blob")
	w = b.writeFile(file.Write{Target: at("blob"), Content: file.Content{BlobRef: &file.BlobRef{BlobRef: "sha256:" + hash("blob")}}})
	want(t, "blob", w.Outcome, file.OK, "")
	if b.content("blob") != "blob" || *w.WrittenBytes != 4 {
		t.Errorf("blob: %q", b.content("blob"))
	}
	w = b.writeFile(file.Write{Target: at("blob"), Content: file.Content{BlobRef: &file.BlobRef{BlobRef: "sha256:" + hash("other")}}})
	want(t, "unknown blob", w.Outcome, file.Error, file.CodeInvalidBlobRef)
	w = b.writeFile(file.Write{Target: at("x")})
	want(t, "no content", w.Outcome, file.Error, file.CodeInvalidContent)
	w = b.writeFile(file.Write{Target: at("x"), Content: text("1"), Mode: "append"})
	want(t, "mode", w.Outcome, file.Error, file.CodeInvalidMode)
	w = b.writeFile(file.Write{Target: at("dir/"), Content: text("1")})
	want(t, "a directory's form", w.Outcome, file.Error, file.CodeIsDirectory)

	// Mode, owner and attributes stay; set-id bits do not.
	b.file("kept", "1")
	if err := os.Chmod(b.at("kept"), 0o641|os.ModeSetuid|os.ModeSetgid|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(b.at("kept"), 1234, 4321); err != nil {
		t.Log("owner is not tried: ", err)
	}
	xattr := unix.Setxattr(b.at("kept"), "user.note", []byte("hello"), 0) == nil
	os.Chmod(b.at("kept"), 0o641|os.ModeSetuid|os.ModeSetgid|os.ModeSticky)
	var before, after unix.Stat_t
	unix.Stat(b.at("kept"), &before)
	for _, change := range []func() file.Outcome{
		func() file.Outcome { return b.writeFile(file.Write{Target: at("kept"), Content: text("2")}).Outcome },
		func() file.Outcome {
			return b.editFile(file.Edit{Target: at("kept"), OldString: "2", NewString: "3"}).Outcome
		},
		func() file.Outcome {
			return b.applyPatch("*** Begin Patch\n*** Update File: kept\n@@\n-3\n+4\n*** Add File: other\n+x\n*** End Patch\n").Outcome
		},
	} {
		want(t, "change", change(), file.OK, "")
		unix.Stat(b.at("kept"), &after)
		if after.Mode&0o7777 != 0o1641 || after.Uid != before.Uid || after.Gid != before.Gid {
			t.Errorf("mode %o owner %d:%d, want 1641 %d:%d", after.Mode&0o7777, after.Uid, after.Gid, before.Uid, before.Gid)
		}
		buf := make([]byte, 16)
		if n, err := unix.Getxattr(b.at("kept"), "user.note", buf); xattr && (err != nil || string(buf[:n]) != "hello") {
			t.Errorf("attribute: %q %v", buf[:max(n, 0)], err)
		}
	}
	if !xattr {
		t.Log("attributes are not tried: the file system has none")
	}

	// A new file has what the umask leaves.
	b.writeFile(file.Write{Target: at("fresh"), Content: text("1")})
	unix.Stat(b.at("fresh"), &after)
	if after.Mode&0o777 != 0o644 {
		t.Errorf("a new file has mode %o", after.Mode&0o777)
	}
}

// R190–R198, C29: edits.
func TestEdits(t *testing.T) {
	for _, row := range []struct {
		name      string
		before    string
		ask       file.Edit
		after     string
		status    file.Status
		code      file.Code
		n         int64
		match     string
		summary   string
		candidate []int64
	}{
		{"exact", "a b c\n", file.Edit{OldString: "b", NewString: "B"}, "a B c\n", file.OK, "", 1, "exact", "Updated f (1 replacement)", nil},
		{"all", "a a a\n", file.Edit{OldString: "a", NewString: "b", ReplaceAll: true}, "b b b\n", file.OK, "", 3, "exact", "Updated f (3 replacements)", nil},
		{"ambiguous", "x\na\na\n", file.Edit{OldString: "a", NewString: "b"}, "x\na\na\n", file.Ambiguous, file.CodeAmbiguous, 0, "exact", "", []int64{2, 3}},
		{"not found", "a\n", file.Edit{OldString: "z", NewString: "b"}, "a\n", file.NotFound, file.CodeEditNotFound, 0, "", "", nil},
		{"near", "x\n  foo(1)\ny\n", file.Edit{OldString: "foo(1)\nz", NewString: "b"}, "x\n  foo(1)\ny\n", file.NotFound, file.CodeEditNotFound, 0, "", "", []int64{2}},
		{"empty old", "a\n", file.Edit{NewString: "b"}, "a\n", file.Error, file.CodeEmptyOldString, 0, "", "", nil},
		{"empty new", "a b\n", file.Edit{OldString: " b"}, "a\n", file.OK, "", 1, "exact", "Updated f (1 replacement)", nil},
		{"exact before fuzzy", "‘a’ 'a'\n", file.Edit{OldString: "'a'", NewString: "b"}, "‘a’ b\n", file.OK, "", 1, "exact", "Updated f (1 replacement)", nil},
		{"quotes", "say “hi” – ok\n", file.Edit{OldString: `say "hi" - ok`, NewString: "bye"}, "bye\n", file.OK, "", 1, "fuzzy", "Updated f (1 replacement)", nil},
		{"white space", "if  (a)\t{\n    b()\n}\n", file.Edit{OldString: "if (a) {\n\tb()\n}", NewString: "c()"}, "c()\n", file.OK, "", 1, "fuzzy", "Updated f (1 replacement)", nil},
		{"white space outside stays", "\t\tfoo()\n\t\tbar()\n", file.Edit{OldString: "    foo()\n    bar()\n", NewString: "    baz()\n"}, "\t\tbaz()\n", file.OK, "", 1, "fuzzy", "Updated f (1 replacement)", nil},
		{"fuzzy all", "a  b\na\tb\n", file.Edit{OldString: "a b", NewString: "c", ReplaceAll: true}, "c\nc\n", file.OK, "", 2, "fuzzy", "Updated f (2 replacements)", nil},
		{"fuzzy ambiguous", "a  b\na\tb\n", file.Edit{OldString: "a b", NewString: "c"}, "a  b\na\tb\n", file.Ambiguous, file.CodeAmbiguous, 0, "fuzzy", "", []int64{1, 2}},
		{"exact only", "a  b\n", file.Edit{OldString: "a b", NewString: "c", ExactOnly: true}, "a  b\n", file.NotFound, file.CodeEditNotFound, 0, "", "", nil},
		{"crlf", "a\r\nb\r\nc\r\n", file.Edit{OldString: "a\nb\n", NewString: "x\ny\n"}, "x\r\ny\r\nc\r\n", file.OK, "", 1, "fuzzy", "Updated f (1 replacement)", nil},
		{"crlf within a line", "a\r\nb\r\n", file.Edit{OldString: "b", NewString: "x\ny"}, "a\r\nx\r\ny\r\n", file.OK, "", 1, "exact", "Updated f (1 replacement)", nil},
		{"dry run", "a\n", file.Edit{OldString: "a", NewString: "b", DryRun: true}, "a\n", file.OK, "", 1, "exact", "Updated f (1 replacement)", nil},
		{"hash", "a\n", file.Edit{OldString: "a", NewString: "b", ExpectedSHA256: hash("b\n")}, "a\n", file.Error, file.CodeHashMismatch, 0, "", "", nil},
		{"white space only", "a b\n", file.Edit{OldString: " \t ", NewString: "b"}, "a b\n", file.NotFound, file.CodeEditNotFound, 0, "", "", nil},
	} {
		b := newBox(t, file.Caps{})
		b.file("f", row.before)
		row.ask.FilePath = "f"
		for range 2 { // R196: the same twice
			b.file("f", row.before)
			e := b.editFile(row.ask)
			want(t, row.name, e.Outcome, row.status, row.code)
			if b.content("f") != row.after {
				t.Errorf("%s: %q, want %q", row.name, b.content("f"), row.after)
			}
			if e.Status == file.OK && (*e.Replacements != row.n || *e.Applied == row.ask.DryRun) || e.Match != row.match || e.Summary != row.summary {
				t.Errorf("%s: %+v", row.name, e)
			}
			var lines []int64
			for _, c := range e.Candidates {
				lines = append(lines, c.Line)
			}
			if fmt.Sprint(lines) != fmt.Sprint(row.candidate) {
				t.Errorf("%s: candidates %v, want %v", row.name, lines, row.candidate)
			}
		}
	}
}

// R094, R095, R098–R106, T113: every capability, on what is there and on what is not.
func TestCapabilities(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	patch := "*** Begin Patch\n*** Update File: f\n@@\n-aaaa\n+b\n*** Add File: g\n+x\n*** End Patch\n"
	for _, row := range []struct {
		name string
		caps file.Caps
		do   func(b *box) file.Outcome
		want file.Status
		code file.Code
	}{
		{"no ops", file.Caps{Ops: []file.Class{}}, func(b *box) file.Outcome { return b.readFile(file.Read{Target: at("f")}).Outcome }, file.Forbidden, file.CodeOpNotAllowed},
		{"other op", file.Caps{Ops: []file.Class{"read"}}, func(b *box) file.Outcome {
			return b.writeFile(file.Write{Target: at("f"), Content: text("1")}).Outcome
		}, file.Forbidden, file.CodeOpNotAllowed},
		{"glob is list", file.Caps{Ops: []file.Class{"search"}}, func(b *box) file.Outcome { return b.globFor(file.Glob{Pattern: "*"}).Outcome }, file.Forbidden, file.CodeOpNotAllowed},
		{"no roots", file.Caps{Roots: []string{}}, func(b *box) file.Outcome { return b.readFile(file.Read{Target: at("f")}).Outcome }, file.Forbidden, file.CodePathNotAllowed},
		{"grep outside by default", file.Caps{Roots: []string{"/work/d"}}, func(b *box) file.Outcome { return b.grepFor(file.Grep{Pattern: "a"}).Outcome }, file.Forbidden, file.CodePathNotAllowed},
		{"glob outside by default", file.Caps{Roots: []string{"/work/d"}}, func(b *box) file.Outcome { return b.globFor(file.Glob{Pattern: "*"}).Outcome }, file.Forbidden, file.CodePathNotAllowed},
		{"list outside by default", file.Caps{Roots: []string{"/work/d"}}, func(b *box) file.Outcome {
			return b.do(file.Request{Op: file.OpList, List: &file.List{}}).List.Outcome
		}, file.Forbidden, file.CodePathNotAllowed},
		{"prefix twin", file.Caps{Roots: []string{"/work/d"}}, func(b *box) file.Outcome { return b.readFile(file.Read{Target: at("d-evil/f")}).Outcome }, file.Forbidden, file.CodePathNotAllowed},
		{"prefix twin by ..", file.Caps{Roots: []string{"/work/d"}}, func(b *box) file.Outcome { return b.readFile(file.Read{Target: at("d/../d-evil/f")}).Outcome }, file.Forbidden, file.CodePathNotAllowed},
		{"missing outside", file.Caps{Roots: []string{"/work/d"}}, func(b *box) file.Outcome {
			return b.do(file.Request{Op: file.OpExists, Stat: &file.Stat{Target: at("nothing")}}).Stat.Outcome
		}, file.Forbidden, file.CodePathNotAllowed},
		{"patch outside", file.Caps{Roots: []string{"/work/d"}}, func(b *box) file.Outcome { return b.applyPatch(patch).Outcome }, file.Forbidden, file.CodePathForbidden},
		{"write root", file.Caps{WriteRoots: []string{"/work/d"}}, func(b *box) file.Outcome {
			return b.writeFile(file.Write{Target: at("f"), Content: text("1")}).Outcome
		}, file.Forbidden, file.CodePathNotAllowed},
		{"read beside the write root", file.Caps{WriteRoots: []string{"/work/d"}}, func(b *box) file.Outcome { return b.readFile(file.Read{Target: at("f")}).Outcome }, file.OK, ""},
		{"write bytes", file.Caps{MaxWriteBytes: n(3)}, func(b *box) file.Outcome {
			return b.writeFile(file.Write{Target: at("f"), Content: text("1234")}).Outcome
		}, file.Forbidden, file.CodeWriteBytes},
		{"write bytes, blob", file.Caps{MaxWriteBytes: n(3)}, func(b *box) file.Outcome {
			b.blobs["sha256:"+hash("1234")] = []byte("1234")
			return b.writeFile(file.Write{Target: at("f"), Content: file.Content{BlobRef: &file.BlobRef{BlobRef: "sha256:" + hash("1234")}}}).Outcome
		}, file.Forbidden, file.CodeWriteBytes},
		{"write bytes, edit", file.Caps{MaxWriteBytes: n(6)}, func(b *box) file.Outcome {
			return b.editFile(file.Edit{Target: at("f"), OldString: "a\n", NewString: "1234567"}).Outcome
		}, file.Forbidden, file.CodeWriteBytes},
		{"write bytes, patch", file.Caps{MaxWriteBytes: n(1)}, func(b *box) file.Outcome { return b.applyPatch(patch).Outcome }, file.Forbidden, file.CodeWriteBytes},
		{"patch bytes", file.Caps{MaxPatchBytes: n(10)}, func(b *box) file.Outcome { return b.applyPatch(patch).Outcome }, file.Forbidden, file.CodePatchBytes},
		{"patch bytes, blob", file.Caps{MaxPatchBytes: n(10)}, func(b *box) file.Outcome {
			b.blobs["sha256:"+hash(patch)] = []byte(patch)
			return b.do(file.Request{Op: file.OpPatch, Patch: &file.Patch{Patch: file.PatchText{BlobRef: &file.BlobRef{BlobRef: "sha256:" + hash(patch)}}}}).Patch.Outcome
		}, file.Forbidden, file.CodePatchBytes},
		{"formats", file.Caps{PatchFormats: []string{"unified"}}, func(b *box) file.Outcome { return b.applyPatch(patch).Outcome }, file.Forbidden, file.CodeFormatNotAllowed},
		{"changed files", file.Caps{MaxChangedFiles: n(1)}, func(b *box) file.Outcome { return b.applyPatch(patch).Outcome }, file.Forbidden, file.CodeChangedFiles},
		{"replacements", file.Caps{MaxReplacements: n(3)}, func(b *box) file.Outcome {
			return b.editFile(file.Edit{Target: at("f"), OldString: "a", NewString: "b", ReplaceAll: true}).Outcome
		}, file.Forbidden, file.CodeReplacements},
		{"protected", file.Caps{ProtectedPaths: []string{"/work/f"}}, func(b *box) file.Outcome {
			return b.editFile(file.Edit{Target: at("f"), OldString: "aaaa", NewString: "b"}).Outcome
		}, file.Forbidden, file.CodeProtected},
		{"protected, read", file.Caps{ProtectedPaths: []string{"/work/f"}}, func(b *box) file.Outcome { return b.readFile(file.Read{Target: at("f")}).Outcome }, file.OK, ""},
		{"protected, missing", file.Caps{ProtectedPaths: []string{"/work/.git/hooks"}}, func(b *box) file.Outcome {
			return b.writeFile(file.Write{Target: at(".git/hooks/pre-commit"), Content: text("x"), CreateParents: true}).Outcome
		}, file.Forbidden, file.CodeProtected},
		{"protected, file in its way", file.Caps{ProtectedPaths: []string{"/work/.git/hooks"}}, func(b *box) file.Outcome {
			return b.writeFile(file.Write{Target: at(".git"), Content: text("gitdir: d")}).Outcome
		}, file.Forbidden, file.CodeProtected},
		{"protected, by link", file.Caps{ProtectedPaths: []string{"/work/d"}}, func(b *box) file.Outcome {
			b.link("d", "alias")
			return b.writeFile(file.Write{Target: at("alias/x"), Content: text("x")}).Outcome
		}, file.Forbidden, file.CodeProtected},
		{"protected, moved parent", file.Caps{ProtectedPaths: []string{"/work/d/x/y"}}, func(b *box) file.Outcome {
			return b.do(file.Request{Op: file.OpMove, Move: &file.Move{Target: at("d"), To: "e"}}).Change.Outcome
		}, file.Forbidden, file.CodeProtected},
		{"protected, moved onto", file.Caps{ProtectedPaths: []string{"/work/e/x/y"}}, func(b *box) file.Outcome {
			return b.do(file.Request{Op: file.OpMove, Move: &file.Move{Target: at("d"), To: "e"}}).Change.Outcome
		}, file.Forbidden, file.CodeProtected},
		{"protected, removed parent", file.Caps{ProtectedPaths: []string{"/work/d/x/y"}}, func(b *box) file.Outcome {
			return b.do(file.Request{Op: file.OpRemove, Remove: &file.Remove{Target: at("d"), Recursive: true}}).Change.Outcome
		}, file.Forbidden, file.CodeProtected},
		{"protected, patch", file.Caps{ProtectedPaths: []string{"/work/g"}}, func(b *box) file.Outcome { return b.applyPatch(patch).Outcome }, file.Forbidden, file.CodeProtected},
		{"scan files", file.Caps{MaxScanFiles: n(1)}, func(b *box) file.Outcome { return b.grepFor(file.Grep{Pattern: "a"}).Outcome }, file.OK, file.CodeScanFiles},
		{"scan bytes", file.Caps{MaxScanBytes: n(6)}, func(b *box) file.Outcome { return b.grepFor(file.Grep{Pattern: "a"}).Outcome }, file.OK, file.CodeScanBytes},
		{"scan files, glob", file.Caps{MaxScanFiles: n(1)}, func(b *box) file.Outcome { return b.globFor(file.Glob{Pattern: "**"}).Outcome }, file.OK, file.CodeScanFiles},
		{"the working directory is not moved", file.Caps{}, func(b *box) file.Outcome {
			return b.do(file.Request{Op: file.OpMove, Move: &file.Move{Target: at("/work"), To: "/w"}}).Change.Outcome
		}, file.Forbidden, file.CodePathNotAllowed},
		{"all absent", file.Caps{}, func(b *box) file.Outcome { return b.applyPatch(patch).Outcome }, file.OK, ""},
	} {
		b := newBox(t, row.caps)
		b.file("f", "aaaa\n")
		b.file("d/f", "aaaa\n")
		b.file("d-evil/f", "canary\n")
		before := b.state()
		o := row.do(b)
		if o.Status != row.want || o.Code != row.code {
			t.Errorf("%s: %s %s (%s), want %s %s", row.name, o.Status, o.Code, o.Message, row.want, row.code)
		}
		if o.Status == file.Forbidden {
			delete(before, "alias")
			after := b.state()
			delete(after, "alias")
			if d := difference(after, before); d != "" {
				t.Errorf("%s: what was refused has changed\n%s", row.name, d)
			}
		}
	}

	// C17: request-level limits are clamped, and said so.
	b := newBox(t, file.Caps{MaxReadBytes: n(3), MaxGrepResults: n(1), MaxGlobResults: n(1)})
	b.file("a", "1234\n")
	b.file("b", "1234\n")
	r := b.readFile(file.Read{Target: at("a"), MaxBytes: n(4)})
	if out(r.Content) != "text:123" || !r.Truncated || len(r.Clamped) != 1 || r.Clamped[0] != (file.Clamp{Field: "max_bytes", Requested: 4, Effective: 3, Source: "capability"}) {
		t.Errorf("read: %+v", r)
	}
	g := b.grepFor(file.Grep{Pattern: "1", MaxResults: n(5)})
	if *g.MatchCount != 2 || !g.Truncated || out(g.Matches) != "text:a:1:1234\n" || len(g.Clamped) != 1 {
		t.Errorf("grep: %+v", g)
	}
	gl := b.globFor(file.Glob{Pattern: "*", MaxResults: n(5)})
	if *gl.Count != 2 || !gl.Truncated || len(gl.Clamped) != 1 {
		t.Errorf("glob: %+v", gl)
	}
}

// R096, R097, T112–T115: links under the three policies.
func TestLinks(t *testing.T) {
	for _, row := range []struct {
		path  string
		codes [3]file.Code // deny, within_root_only, allow; "" reads
	}{
		{"/ws/f", [3]file.Code{}},
		{"/ws/d/../f", [3]file.Code{}},
		{"/ws/./d//../f", [3]file.Code{}},
		{"/ws/in", [3]file.Code{file.CodeLinkNotAllowed, "", ""}},
		{"/ws/abs", [3]file.Code{file.CodeLinkNotAllowed, "", ""}},
		{"/ws/dirlink/g", [3]file.Code{file.CodeLinkNotAllowed, "", ""}},
		{"/ws/chain", [3]file.Code{file.CodeLinkNotAllowed, "", ""}},
		{"/ws/in/", [3]file.Code{file.CodeLinkNotAllowed, file.CodeNotDirectory, file.CodeNotDirectory}},
		{"/ws/out", [3]file.Code{file.CodeLinkNotAllowed, file.CodePathNotAllowed, file.CodePathNotAllowed}},
		{"/ws/out/", [3]file.Code{file.CodeLinkNotAllowed, file.CodePathNotAllowed, file.CodePathNotAllowed}},
		{"/ws/up/secret", [3]file.Code{file.CodeLinkNotAllowed, file.CodePathNotAllowed, file.CodePathNotAllowed}},
		{"/ws/outback", [3]file.Code{file.CodeLinkNotAllowed, file.CodeLinkNotAllowed, ""}},
		{"/side/back", [3]file.Code{file.CodeLinkNotAllowed, file.CodeLinkNotAllowed, ""}},
		{"/ws/dangling", [3]file.Code{file.CodeLinkNotAllowed, file.CodePathNotFound, file.CodePathNotFound}},
		{"/ws/danglingout", [3]file.Code{file.CodeLinkNotAllowed, file.CodePathNotAllowed, file.CodePathNotAllowed}},
		{"/ws/loop", [3]file.Code{file.CodeLinkNotAllowed, file.CodeInvalidPath, file.CodeInvalidPath}},
		{"/ws/dirlink/../f", [3]file.Code{file.CodeLinkNotAllowed, file.CodePathNotFound, file.CodePathNotFound}}, // not lexical: /ws/d/sub/..
		{"/ws/f/..", [3]file.Code{file.CodePathNotFound, file.CodePathNotFound, file.CodePathNotFound}},
		{"/ws/nothing/../f", [3]file.Code{file.CodePathNotFound, file.CodePathNotFound, file.CodePathNotFound}},
		{"/ws/../../../ws/f", [3]file.Code{}},
		{"../ws/f", [3]file.Code{}},
		{"/ws-evil/secret", [3]file.Code{file.CodePathNotAllowed, file.CodePathNotAllowed, file.CodePathNotAllowed}},
		{"/ws/../ws-evil/secret", [3]file.Code{file.CodePathNotAllowed, file.CodePathNotAllowed, file.CodePathNotAllowed}},
		{"/ws/%2e%2e/secret", [3]file.Code{file.CodePathNotFound, file.CodePathNotFound, file.CodePathNotFound}},
		{`/ws/..\secret`, [3]file.Code{file.CodePathNotFound, file.CodePathNotFound, file.CodePathNotFound}},
		{"~/f", [3]file.Code{file.CodePathNotAllowed, file.CodePathNotAllowed, file.CodePathNotAllowed}},
		{"", [3]file.Code{file.CodeInvalidPath, file.CodeInvalidPath, file.CodeInvalidPath}},
		{"/ws/f\x00/x", [3]file.Code{file.CodeInvalidPath, file.CodeInvalidPath, file.CodeInvalidPath}},
		{"/ws/" + strings.Repeat("x", 256), [3]file.Code{file.CodeInvalidPath, file.CodeInvalidPath, file.CodeInvalidPath}},
		{"/ws/" + strings.Repeat("x/", 2100), [3]file.Code{file.CodeInvalidPath, file.CodeInvalidPath, file.CodeInvalidPath}},
		{"/ws/f/.", [3]file.Code{file.CodePathNotFound, file.CodePathNotFound, file.CodePathNotFound}},
		{"/", [3]file.Code{file.CodePathNotAllowed, file.CodePathNotAllowed, file.CodePathNotAllowed}},
	} {
		for i, policy := range []string{file.FollowDeny, file.FollowWithin, file.FollowAllow} {
			b := newBox(t, file.Caps{Roots: []string{"/ws"}, FollowSymlinks: policy})
			b.file("/ws/f", "fine")
			b.file("/ws/d/sub/g", "fine")
			b.file("/secret", "canary")
			b.file("/ws-evil/secret", "canary")
			os.Mkdir(b.at("/side"), 0o755)
			b.link("f", "/ws/in")
			b.link("/ws/f", "/ws/abs")
			b.link("d/sub", "/ws/dirlink")
			b.link("dirlink/../../abs", "/ws/chain")
			b.link("../secret", "/ws/out")
			b.link("..", "/ws/up")
			b.link("/side/back", "/ws/outback")
			b.link("/ws/f", "/side/back")
			b.link("none", "/ws/dangling")
			b.link("/none", "/ws/danglingout")
			b.link("loop", "/ws/loop")
			r := b.readFile(file.Read{Target: at(row.path)})
			code := row.codes[i]
			if row.path == "/ws/f/." && r.Code == file.CodeNotDirectory {
				code = r.Code // said either way
			}
			if r.Code != code || code == "" && out(r.Content) != "text:fine" || strings.Contains(out(r.Content), "canary") {
				t.Errorf("%s %.40q: %s %s %q (%s), want %s", policy, row.path, r.Status, r.Code, out(r.Content), r.Message, code)
			}
		}
	}
}

// A write through a link goes to what it leads to, or nowhere: never to a new file in the link's place, never outside.
func TestWritesThroughLinks(t *testing.T) {
	b := newBox(t, file.Caps{Roots: []string{"/work"}})
	b.file("f", "old")
	b.file("/secret", "canary")
	b.link("f", "in")
	b.link("../secret", "out")
	b.link("../created", "dangling")
	want(t, "in", b.writeFile(file.Write{Target: at("in"), Content: text("new")}).Outcome, file.OK, "")
	if to, err := os.Readlink(b.at("in")); err != nil || to != "f" || b.content("f") != "new" {
		t.Errorf("link %q %v, file %q", to, err, b.content("f"))
	}
	for _, name := range []string{"out", "dangling"} {
		want(t, name, b.writeFile(file.Write{Target: at(name), Content: text("new")}).Outcome, file.Forbidden, file.CodePathNotAllowed)
		want(t, name, b.applyPatch("*** Begin Patch\n*** Delete File: "+name+"\n*** End Patch\n").Outcome, file.Forbidden, file.CodePathForbidden)
	}
	if b.content("/secret") != "canary" || b.content("/created") != "-" {
		t.Error("something outside has changed")
	}
	// Removing and moving are about the link itself.
	want(t, "remove", b.do(file.Request{Op: file.OpRemove, Remove: &file.Remove{Target: at("out")}}).Change.Outcome, file.OK, "")
	if b.content("/secret") != "canary" {
		t.Error("a removed link took its target along")
	}
	b.file("d/x", "1")
	b.link("../../secret", "d/out")
	b.link("/", "d/root")
	want(t, "remove -r", b.do(file.Request{Op: file.OpRemove, Remove: &file.Remove{Target: at("d"), Recursive: true}}).Change.Outcome, file.OK, "")
	if b.content("/secret") != "canary" {
		t.Error("a removed tree took a target along")
	}
}

// T126, T127: no end, no size, no content.
func TestEndlessAndSparseFiles(t *testing.T) {
	b := newBox(t, file.Caps{})
	f, err := os.Create(b.at("sparse"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(1 << 40); err != nil {
		t.Skip("no sparse files of a terabyte here: ", err)
	}
	f.Close()
	start := time.Now()
	r := b.readFile(file.Read{Target: at("sparse"), OffsetBytes: 1 << 39, MaxBytes: ptr(int64(4))})
	if out(r.Content) != "text:\x00\x00\x00\x00" || !r.Truncated {
		t.Errorf("range of a sparse file: %q", out(r.Content))
	}
	if g := b.grepFor(file.Grep{Pattern: "x"}); *g.MatchCount != 0 || g.Status != file.OK {
		t.Errorf("grep: %+v", g)
	}
	want(t, "edit", b.editFile(file.Edit{Target: at("sparse"), OldString: "x", NewString: "y"}).Outcome, file.Error, file.CodeTooLarge)
	want(t, "patch", b.applyPatch("*** Begin Patch\n*** Update File: sparse\n@@\n-x\n+y\n*** End Patch\n").Outcome, file.Error, file.CodeTooLarge)
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("took %v", d)
	}
}

// What procfs makes while it is read says that it is empty.
func TestFilesWithoutSize(t *testing.T) {
	root, err := os.Open("/proc/self")
	if err != nil {
		t.Skip(err)
	}
	defer root.Close()
	tools, err := Open(Config{Root: root, Workdir: "/"})
	if err != nil {
		t.Fatal(err)
	}
	defer tools.Close()
	r := tools.Do(context.Background(), &file.Request{Op: file.OpRead, Read: &file.Read{Target: at("limits")}}).Read
	if !strings.Contains(out(r.Content), "Max open files") || r.Truncated {
		t.Errorf("%+v %q", r.Outcome, out(r.Content))
	}
	r = tools.Do(context.Background(), &file.Request{Op: file.OpRead, Read: &file.Read{Target: at("limits"), MaxBytes: ptr(int64(5))}}).Read
	if out(r.Content) != "text:Limit" || !r.Truncated {
		t.Errorf("%+v %q", r.Outcome, out(r.Content))
	}
	g := tools.Do(context.Background(), &file.Request{Op: file.OpGrep, Grep: &file.Grep{Target: at("limits"), Pattern: "^Max open files"}}).Grep
	if g.Status != file.OK || *g.MatchCount != 1 {
		t.Errorf("%+v", g)
	}
	// Links of procfs lead past every path.
	for _, name := range []string{"root/etc/passwd", "cwd/x", "fd/0", "exe"} {
		r := tools.Do(context.Background(), &file.Request{Op: file.OpRead, Read: &file.Read{Target: at(name)}}).Read
		want(t, name, r.Outcome, file.Forbidden, file.CodeLinkNotAllowed)
	}
}

// T130: names that are not text, in every listing and back.
func TestNames(t *testing.T) {
	b := newBox(t, file.Caps{})
	names := []string{"a b", "-n", `"q"`, "new\nline", "tab\t", "esc\x1b[31m", "bad\xff\xfe", `back\slash`, strings.Repeat("é", 127), "日本", "*", "[a]", "{b}", "'", "$(id)", "nul-less\x01", "\u202ertl"}
	for _, name := range names {
		if w := b.writeFile(file.Write{Target: file.Target{PathBytes: []byte("d/" + name)}, Content: text("hit\n"), CreateParents: true}); w.Status != file.OK {
			t.Errorf("%q: %+v", name, w.Outcome)
		}
	}
	seen := func(what, lines, prefix string) {
		found := map[string]bool{}
		for line := range strings.Lines(lines) {
			name, ok := file.Unquote(strings.TrimSuffix(line, "\n"))
			if !ok {
				t.Errorf("%s: %q is no name", what, line)
			}
			found[strings.TrimPrefix(name, prefix)] = true
			if strings.ContainsRune(line, 0x1b) {
				t.Errorf("%s: an escape sequence in %q", what, line)
			}
		}
		for _, name := range names {
			if !found[name] {
				t.Errorf("%s lacks %q", what, name)
			}
		}
	}
	l := b.do(file.Request{Op: file.OpList, List: &file.List{Target: at("d")}}).List
	seen("list", strings.TrimPrefix(out(l.Entries), "text:"), "")
	seen("glob", strings.TrimPrefix(out(b.globFor(file.Glob{Pattern: "**/*"}).Paths), "text:"), "d/")
	g := strings.ReplaceAll(strings.TrimPrefix(out(b.grepFor(file.Grep{Pattern: "hit"}).Matches), "text:"), ":1:hit\n", "\n")
	seen("grep", g, "d/")
	for _, name := range names {
		r := b.readFile(file.Read{Target: file.Target{PathBytes: []byte("d/" + name)}})
		if out(r.Content) != "text:hit\n" {
			t.Errorf("read %q: %+v", name, r.Outcome)
		}
		p := b.applyPatch("*** Begin Patch\n*** Delete File: " + file.Quote("d/"+name) + "\n*** End Patch\n")
		if p.Status != file.OK {
			t.Errorf("patch %q: %+v", name, p.Outcome)
		}
	}
	if entries, _ := os.ReadDir(b.at("d")); len(entries) != 0 {
		t.Errorf("left: %v", entries)
	}
}

// R222: directories, moves, removals.
func TestMovesAndRemovals(t *testing.T) {
	b := newBox(t, file.Caps{})
	b.file("f", "1")
	b.file("g", "2")
	b.file("d/x", "3")
	move := func(from, to string, over bool) file.Outcome {
		return b.do(file.Request{Op: file.OpMove, Move: &file.Move{Target: at(from), To: to, Overwrite: over}}).Change.Outcome
	}
	remove := func(name string, r bool) file.Outcome {
		return b.do(file.Request{Op: file.OpRemove, Remove: &file.Remove{Target: at(name), Recursive: r}}).Change.Outcome
	}
	mkdir := func(name string, p bool) file.Outcome {
		return b.do(file.Request{Op: file.OpMkdir, Mkdir: &file.Mkdir{Target: at(name), CreateParents: p}}).Change.Outcome
	}
	for _, row := range []struct {
		name string
		got  file.Outcome
		want file.Status
		code file.Code
	}{
		{"onto", move("f", "g", false), file.Conflict, file.CodeFileExists},
		{"onto, overwrite", move("f", "g", true), file.OK, ""},
		{"gone", move("f", "h", false), file.NotFound, file.CodePathNotFound},
		{"onto directory", move("g", "d", true), file.Error, file.CodeIsDirectory},
		{"into itself", move("d", "d/y", false), file.Error, file.CodeInvalidPath},
		{"no parent", move("g", "no/g", false), file.NotFound, file.CodePathNotFound},
		{"directory", move("d", "e", false), file.OK, ""},
		{"not empty", remove("e", false), file.Conflict, file.CodeNotEmpty},
		{"recursive", remove("e", true), file.OK, ""},
		{"again", remove("e", true), file.NotFound, file.CodePathNotFound},
		{"root", remove("/", true), file.Forbidden, file.CodePathNotAllowed},
		{"workdir", remove("/work", true), file.Forbidden, file.CodePathNotAllowed},
		{"mkdir", mkdir("m", false), file.OK, ""},
		{"mkdir again", mkdir("m", false), file.Conflict, file.CodeFileExists},
		{"mkdir -p again", mkdir("m", true), file.OK, ""},
		{"mkdir, no parent", mkdir("n/o", false), file.Error, file.CodeParentMissing},
		{"mkdir -p", mkdir("n/o/p", true), file.OK, ""},
		{"mkdir on a file", mkdir("g", true), file.Conflict, file.CodeFileExists},
	} {
		if row.got.Status != row.want || row.got.Code != row.code {
			t.Errorf("%s: %s %s (%s), want %s %s", row.name, row.got.Status, row.got.Code, row.got.Message, row.want, row.code)
		}
	}
	if b.content("g") != "1" {
		t.Errorf("g is %q", b.content("g"))
	}
	if _, err := os.Stat(filepath.Join(b.at("n/o/p"))); err != nil {
		t.Error(err)
	}
}

// T121: who may not read or write a file by himself may not do it by a tool, whatever the directory permits; what he makes is his.
func TestOthersFiles(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root has files of others")
	}
	b := newFastBox(t, file.Caps{})
	os.Chmod(filepath.Dir(b.dir), 0o711)
	os.Chmod(b.dir, 0o755)
	os.Chmod(b.at("."), 0o777)
	b.file("secret", "canary\n")
	os.Chmod(b.at("secret"), 0o600)
	b.file("readable", "text\n")
	b.file("mine", "text\n")
	os.Chown(b.at("mine"), 65534, 65534)
	os.Mkdir(b.at("closed"), 0o700)
	b.file("closed/f", "canary\n")
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "FILETOOL_STRANGER=1")
	root, err := os.Open(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	cmd.ExtraFiles = []*os.File{root}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v %s", err, out)
	}
	want := "read secret: forbidden forbidden\nwrite secret: forbidden forbidden\nedit readable: forbidden forbidden\nwrite readable: forbidden forbidden\npatch readable: forbidden forbidden\n" +
		"write mine: ok \nwrite new: ok \nread closed/f: forbidden forbidden\nlist closed: forbidden forbidden\ngrep: ok  mine:1:theirs|new:1:theirs|readable:1:text|\n"
	if string(out) != want {
		t.Errorf("%s\nwant\n%s", out, want)
	}
	var st unix.Stat_t
	if unix.Stat(b.at("new"), &st); st.Uid != 65534 || st.Mode&0o777 != 0o644 {
		t.Errorf("a new file is %d's, %o", st.Uid, st.Mode)
	}
}

// stranger is another user at the tree that descriptor 3 names.
func stranger() {
	tools, err := Open(Config{Root: os.NewFile(3, "root"), Workdir: "/work"})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	b := &box{Tools: tools}
	say := func(what string, o file.Outcome) { fmt.Println(what+":", o.Status, o.Code) }
	say("read secret", b.readFile(file.Read{Target: at("secret")}).Outcome)
	say("write secret", b.writeFile(file.Write{Target: at("secret"), Content: text("x")}).Outcome)
	say("edit readable", b.editFile(file.Edit{Target: at("readable"), OldString: "text", NewString: "x"}).Outcome)
	say("write readable", b.writeFile(file.Write{Target: at("readable"), Content: text("x")}).Outcome)
	say("patch readable", b.applyPatch("*** Begin Patch\n*** Update File: readable\n@@\n-text\n+x\n*** Add File: fresh\n+x\n*** End Patch\n").Outcome)
	say("write mine", b.writeFile(file.Write{Target: at("mine"), Content: text("theirs\n")}).Outcome)
	say("write new", b.writeFile(file.Write{Target: at("new"), Content: text("theirs\n")}).Outcome)
	say("read closed/f", b.readFile(file.Read{Target: at("closed/f")}).Outcome)
	say("list closed", b.do(file.Request{Op: file.OpList, List: &file.List{Target: at("closed")}}).List.Outcome)
	g := b.grepFor(file.Grep{Pattern: "."})
	fmt.Println("grep:", g.Status, g.Code, strings.ReplaceAll(strings.TrimPrefix(out(g.Matches), "text:"), "\n", "|"))
}
