package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	opa "github.com/open-policy-agent/opa/v1/bundle"
	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/policies"
	"github.com/stockade-dev/stockade/rego"
)

var small = fstest.MapFS{
	"open/decision.rego":      {Data: []byte("package stockade.open\n")},
	"open/decision_test.rego": {Data: []byte("package stockade.open_test\n")},
	"data.json":               {Data: []byte(`{"stockade_contract": 1, "n": 10000000000000000001}`)},
	"profiles/a/data.json":    {Data: []byte(`{"b": [1, 2.50, "c<&"]}`)},
	"README.md":               {Data: []byte("words")},
}

type signer struct {
	private []byte
	key     Key
}

func newSigner(t testing.TB) signer {
	t.Helper()
	private, public, err := GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	key, err := ParseKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return signer{private, key}
}

func (s signer) sign(t testing.TB, policy fs.FS, number int64) []byte {
	t.Helper()
	tarball, id, err := Sign(policy, number, s.private)
	if err != nil {
		t.Fatal(err)
	}
	if id != s.key.ID {
		t.Fatalf("signed by %s, want %s", id, s.key.ID)
	}
	return tarball
}

func write(t testing.TB, name string, text []byte) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func directory(t testing.TB, policy fs.FS) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "policy")
	if err := os.CopyFS(dir, policy); err != nil {
		t.Fatal(err)
	}
	return dir
}

func owner() uint32 { return uint32(os.Getuid()) }

// What is signed is what is read, and it is the same revision however it came: a directory, a tarball, one that the
// program brings along.
func TestOneRevision(t *testing.T) {
	s := newSigner(t)
	tarball, err := Open(write(t, t.TempDir()+"/b.tar.gz", s.sign(t, policies.FS, 7)), Trust{Keys: []Key{s.key}})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := Open(directory(t, policies.FS), Trust{Owner: owner()})
	if err != nil {
		t.Fatal(err)
	}
	brought, err := Of(policies.FS)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := rego.Load(tarball.FS, rego.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	for _, r := range []*Revision{tarball, dir, brought} {
		if r.Digest != engine.Digest() || r.Data != tarball.Data || r.Contract != rego.Contract {
			t.Errorf("%q: %s %s contract %d", r.Source, r.Digest, r.Data, r.Contract)
		}
	}
	if tarball.Number != 7 || tarball.SignedBy != s.key.ID || dir.Number != 0 || dir.SignedBy != "" {
		t.Errorf("%d by %q, %d by %q", tarball.Number, tarball.SignedBy, dir.Number, dir.SignedBy)
	}
}

// Every kind of key that is taken signs and verifies, and so does OPA with it. A weak one, and a shared secret, are no keys.
func TestKeys(t *testing.T) {
	ec256, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ec384, _ := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	ec521, _ := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	r2048, _ := rsa.GenerateKey(rand.Reader, 2048)
	r1024, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Setenv("GODEBUG", "rsa1024min=0")
		r1024, _ = rsa.GenerateKey(rand.Reader, 1024)
	}
	for _, row := range []struct {
		key  any
		want string
	}{{ec256, "ES256"}, {ec384, "ES384"}, {ec521, ""}, {r2048, "RS256"}, {r1024, ""}} {
		der, err := x509.MarshalPKCS8PrivateKey(row.key)
		if err != nil {
			t.Fatal(err)
		}
		private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
		public, err := publicOf(private)
		if public.Algorithm != row.want {
			t.Errorf("%T: %q, want %q (%v)", row.key, public.Algorithm, row.want, err)
		}
		if row.want == "" {
			continue
		}
		tarball, _, err := Sign(small, 1, private)
		if err != nil {
			t.Errorf("%s: %v", row.want, err)
			continue
		}
		readByOPA(t, tarball, public)
		if _, err := Open(write(t, t.TempDir()+"/b.tar.gz", tarball), Trust{Keys: []Key{newSigner(t).key, public}}); err != nil {
			t.Errorf("%s: %v", row.want, err)
		}
	}
	s := newSigner(t)
	readByOPA(t, s.sign(t, policies.FS, 3), s.key)
	for _, text := range []string{"", "secret", string(s.private), s.key.config.Key + s.key.config.Key} {
		if _, err := ParseKey([]byte(text)); err == nil {
			t.Errorf("%q is a key", text)
		}
	}
}

// readByOPA reads a tarball with OPA's own reader, signature included.
func readByOPA(t *testing.T, tarball []byte, key Key) {
	t.Helper()
	b, err := opa.NewReader(bytes.NewReader(tarball)).
		WithBundleVerificationConfig(opa.NewVerificationConfig(map[string]*opa.KeyConfig{"k": key.config}, "k", "", nil)).Read()
	if err != nil {
		t.Errorf("OPA: %v", err)
	}
	if len(b.Modules) == 0 || len(b.Data) == 0 {
		t.Error("OPA reads nothing")
	}
}

// What OPA makes and signs is taken.
func TestMadeByOPA(t *testing.T) {
	s := newSigner(t)
	version := 1
	b := opa.Bundle{
		Manifest: opa.Manifest{Revision: "12", RegoVersion: &version, Roots: &[]string{""}},
		Data:     map[string]any{"stockade_contract": 2, "profiles": map[string]any{"a": map[string]any{"b": 1.5}}},
		Modules:  []opa.ModuleFile{{URL: "/x/open.rego", Path: "/x/open.rego", RelativePath: "/x/open.rego", Raw: []byte("package stockade.open\n\ndecision := {\"allow\": false}\n")}},
	}
	if err := b.GenerateSignature(opa.NewSigningConfig(string(s.private), "EdDSA", ""), "default", false); err != nil {
		t.Fatal(err)
	}
	var tarball bytes.Buffer
	if err := opa.NewWriter(&tarball).DisableFormat(true).Write(b); err != nil {
		t.Fatal(err)
	}
	r, err := Open(write(t, t.TempDir()+"/b.tar.gz", tarball.Bytes()), Trust{Keys: []Key{s.key}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Number != 12 || r.Contract != 2 {
		t.Errorf("%+v", r)
	}
}

// A bundle of which anything differs from what was signed is refused before anything of it is parsed: what would not
// parse is refused for its signature.
func TestSignature(t *testing.T) {
	s := newSigner(t)
	signed := unpacked(t, s.sign(t, small, 2))
	for name, spoil := range map[string]func(files map[string][]byte){
		"changed": func(f map[string][]byte) { f["open/decision.rego"] = []byte("package {") },
		"changed data": func(f map[string][]byte) {
			f["data.json"] = []byte(`{"stockade_contract": 1, "n": 10000000000000000002}`)
		},
		"no JSON": func(f map[string][]byte) { f["data.json"] = []byte("stockade_contract: 1\nn: 10000000000000000001\n") },
		"a member twice": func(f map[string][]byte) {
			f["data.json"] = []byte(`{"n": 7, "stockade_contract": 1, "n": 10000000000000000001}`)
		},
		"another number": func(f map[string][]byte) {
			f[".manifest"] = bytes.Replace(f[".manifest"], []byte(`"2"`), []byte(`"9"`), 1)
		},
		"no manifest":      func(f map[string][]byte) { delete(f, ".manifest") },
		"a file more":      func(f map[string][]byte) { f["open/more.rego"] = []byte("package {") },
		"a test more":      func(f map[string][]byte) { f["open/more_test.rego"] = []byte("package {") },
		"a file less":      func(f map[string][]byte) { delete(f, "open/decision.rego") },
		"renamed":          func(f map[string][]byte) { f["open/x.rego"] = f["open/decision.rego"]; delete(f, "open/decision.rego") },
		"not signed":       func(f map[string][]byte) { delete(f, ".signatures.json") },
		"signed by nobody": func(f map[string][]byte) { f[".signatures.json"] = []byte(`{"signatures": []}`) },
		"signed twice":     func(f map[string][]byte) { f[".signatures.json"] = doubled(f[".signatures.json"]) },
		"by another": func(f map[string][]byte) {
			f[".signatures.json"] = unpacked(t, newSigner(t).sign(t, small, 2))[".signatures.json"]
		},
		"of another bundle": func(f map[string][]byte) {
			f[".signatures.json"] = unpacked(t, s.sign(t, policies.FS, 2))[".signatures.json"]
		},
		"another verifier": func(f map[string][]byte) {
			f[".signatures.json"] = bytes.Replace(f[".signatures.json"], []byte("{"), []byte(`{"plugin":"mine",`), 1)
		},
		"no algorithm": func(f map[string][]byte) {
			f[".signatures.json"] = []byte(`{"signatures":["eyJhbGciOiJub25lIn0.eyJmaWxlcyI6W119."]}`)
		},
		"a weak digest": func(f map[string][]byte) { f[".signatures.json"] = weak(t, s, f) },
	} {
		files := maps.Clone(signed)
		spoil(files)
		tarball, err := packTarball(files)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Open(write(t, t.TempDir()+"/b.tar.gz", tarball), Trust{Keys: []Key{s.key}}); !errors.Is(err, ErrUntrusted) {
			t.Errorf("%s: %v", name, err)
		}
		dir := filepath.Join(t.TempDir(), "d")
		for name, text := range files {
			write(t, filepath.Join(dir, name), text)
		}
		if _, err := Open(dir, Trust{Keys: []Key{s.key}, Owner: owner()}); !errors.Is(err, ErrUntrusted) {
			t.Errorf("%s, a directory: %v", name, err)
		}
	}
	// Nobody asked for a signature: a bad one is no reason.
	if _, err := Open(write(t, t.TempDir()+"/b.tar.gz", s.sign(t, small, 2)), Trust{Owner: owner()}); err != nil {
		t.Error(err)
	}
	// A signature without a number is good for ever.
	files := maps.Clone(signed)
	files[".manifest"] = []byte(`{"revision":"4f2a"}`)
	delete(files, ".signatures.json")
	files[".signatures.json"], _ = sign(files, s.private, s.key)
	tarball, _ := packTarball(files)
	if _, err := Open(write(t, t.TempDir()+"/b.tar.gz", tarball), Trust{Keys: []Key{s.key}}); err == nil || !strings.Contains(err.Error(), "number from 1 on") {
		t.Error(err)
	}
}

func unpacked(t *testing.T, tarball []byte) map[string][]byte {
	t.Helper()
	files, err := unpackTarball(bytes.NewReader(tarball), Limits{}.orDefault())
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func doubled(signatures []byte) []byte {
	_, token, _ := bytes.Cut(signatures, []byte("["))
	token, _, _ = bytes.Cut(token, []byte("]"))
	return fmt.Appendf(nil, `{"signatures":[%s,%s]}`, token, token)
}

func weak(t *testing.T, s signer, files map[string][]byte) []byte {
	t.Helper()
	h, _ := opa.NewSignatureHasher(opa.MD5)
	var list []opa.FileInfo
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if name == signaturesFile {
			continue
		}
		var value any = files[name]
		if opa.IsStructuredDoc(name) {
			if err := decodeNumbers(files[name], &value); err != nil {
				t.Fatal(err)
			}
		}
		sum, _ := h.HashFile(value)
		list = append(list, opa.NewFile(name, fmt.Sprintf("%x", sum), string(opa.MD5)))
	}
	token, err := opa.GenerateSignedToken(list, opa.NewSigningConfig(string(s.private), "EdDSA", ""), s.key.ID)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Appendf(nil, `{"signatures":[%q]}`, token)
}

// A tarball can do no harm: not by its paths, its links, its devices, its size, nor by saying something twice.
func TestHostileTarballs(t *testing.T) {
	type entry struct {
		tar.Header
		text string
	}
	file := func(name, text string) entry { return entry{tar.Header{Typeflag: tar.TypeReg, Name: name}, text} }
	of := func(kind byte, name, link string) entry {
		return entry{tar.Header{Typeflag: kind, Name: name, Linkname: link}, ""}
	}
	many := make([]entry, defaultFiles+1)
	for i := range many {
		many[i] = file(fmt.Sprintf("f%d.rego", i), "")
	}
	for _, row := range []struct {
		name    string
		entries []entry
		want    string
	}{
		{"traversal", []entry{file("../x.rego", "")}, "no path below"},
		{"traversal inside", []entry{file("a/../../x.rego", "")}, "no path below"},
		{"a dot", []entry{file("a/./x.rego", "")}, "no path below"},
		{"two slashes", []entry{file("//x.rego", "")}, "no path below"},
		{"a backslash", []entry{file(`a\..\x.rego`, "")}, "no path below"},
		{"no name", []entry{file(".//x.rego", "")}, "no path below"},
		{"a symbolic link", []entry{of(tar.TypeSymlink, "x.rego", "/etc/passwd")}, "only files and directories"},
		{"a hard link", []entry{file("y.rego", ""), of(tar.TypeLink, "x.rego", "y.rego")}, "only files and directories"},
		{"a device", []entry{of(tar.TypeChar, "x.rego", "")}, "only files and directories"},
		{"a disk", []entry{of(tar.TypeBlock, "x.rego", "")}, "only files and directories"},
		{"a fifo", []entry{of(tar.TypeFifo, "x.rego", "")}, "only files and directories"},
		{"a file twice", []entry{file("x.rego", "a"), file("/x.rego", "b")}, "there twice"},
		{"a file and a directory", []entry{file("x", "a"), file("x/y.rego", "b")}, "and a directory"},
		{"a directory and a file", []entry{file("x/y.rego", "b"), file("x", "a")}, "there twice"},
		{"too many", many, "more than 4096"},
		{"too deep", []entry{file(strings.Repeat("a/", maxDepth)+"x.rego", "")}, "too deep"},
		{"too long", []entry{file(strings.Repeat("a", maxPath+1), "")}, "too long"},
		{"a bomb", []entry{file("a.rego", strings.Repeat("\x00", 40<<20)), file("b.rego", strings.Repeat("\x00", 40<<20))}, "more than 67108864"},
		{"wasm", []entry{file("policy.wasm", "")}, "compiled policy"},
		{"a plan", []entry{file("plan.json", "{}")}, "compiled policy"},
		{"a delta", []entry{file("patch.json", "{}")}, "delta"},
		{"YAML", []entry{file("x/data.yaml", "")}, "written as JSON"},
		{"an old language", []entry{file(".manifest", `{"rego_version": 0}`)}, "only 1 is known"},
		{"an old language in one file", []entry{file(".manifest", `{"file_rego_versions": {"x": 0}}`)}, "only 1 is known"},
		{"an unknown contract", []entry{file("data.json", `{"stockade_contract": 99}`)}, "contract 99"},
	} {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		w := tar.NewWriter(z)
		for _, e := range row.entries {
			e.Size, e.Mode = int64(len(e.text)), 0o644
			if err := w.WriteHeader(&e.Header); err != nil {
				t.Fatalf("%s: %v", row.name, err)
			}
			w.Write([]byte(e.text))
		}
		w.Close()
		z.Close()
		refused(t, row.name, b.Bytes(), row.want)
	}

	good, err := packTarball(map[string][]byte{"x.rego": []byte("package x")})
	if err != nil {
		t.Fatal(err)
	}
	refused(t, "cut", good[:len(good)-9], "EOF")
	changed := bytes.Clone(good)
	changed[len(changed)-6] ^= 1
	refused(t, "a wrong checksum", changed, "checksum")
	refused(t, "no gzip", []byte("package stockade.open"), "header")
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write(bytes.Repeat([]byte{0}, 1024))
	z.Write([]byte("something"))
	z.Close()
	refused(t, "something behind", b.Bytes(), "behind the end")
	b.Reset()
	z = gzip.NewWriter(&b)
	z.Write(bytes.Repeat([]byte{0}, 100<<20))
	z.Close()
	refused(t, "a bomb of padding", b.Bytes(), "larger than is read")
	dir := t.TempDir()
	if err := unix.Mkfifo(dir+"/f.tar.gz", 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir+"/f.tar.gz", Trust{Owner: owner()}); err == nil {
		t.Error("a fifo is a bundle")
	}
}

func refused(t *testing.T, name string, tarball []byte, want string) {
	t.Helper()
	_, err := Open(write(t, t.TempDir()+"/b.tar.gz", tarball), Trust{Owner: owner()})
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v, want %q", name, err, want)
	}
}

// Who could write a directory could write the policy: it is taken only when nobody else can.
func TestDirectories(t *testing.T) {
	for name, row := range map[string]struct {
		spoil func(dir string) error
		want  string
	}{
		"a file for all":        {func(d string) error { return os.Chmod(d+"/data.json", 0o666) }, "others than its owner"},
		"a file for a group":    {func(d string) error { return os.Chmod(d+"/data.json", 0o664) }, "others than its owner"},
		"a directory for all":   {func(d string) error { return os.Chmod(d+"/open", 0o777) }, "others than its owner"},
		"the directory itself":  {func(d string) error { return os.Chmod(d, 0o775) }, "others than its owner"},
		"the way to it":         {func(d string) error { return os.Chmod(filepath.Dir(d), 0o777) }, "others than its owner"},
		"a link out":            {func(d string) error { return os.Symlink("/etc/hostname", d+"/x.rego") }, "no link is followed"},
		"a link inside":         {func(d string) error { return os.Symlink("data.json", d+"/x.json") }, "no link is followed"},
		"a linked directory":    {func(d string) error { return os.Symlink("/etc", d+"/etc") }, "no link is followed"},
		"a fifo":                {func(d string) error { return unix.Mkfifo(d+"/x.rego", 0o600) }, "only files and directories"},
		"somebody else's file":  {func(d string) error { return os.Chown(d+"/data.json", 12345, 12345) }, "belongs to uid 12345"},
		"somebody else's tests": {func(d string) error { return os.Chown(d+"/open/decision_test.rego", 12345, 12345) }, "belongs to uid 12345"},
		"too large":             {func(d string) error { return os.Truncate(d+"/data.json", defaultBytes+1) }, "more than 67108864"},
		"YAML":                  {func(d string) error { return os.WriteFile(d+"/data.yaml", nil, 0o644) }, "written as JSON"},
	} {
		dir := directory(t, small)
		if err := row.spoil(dir); err != nil {
			if strings.HasPrefix(name, "somebody") && os.Getuid() != 0 {
				continue // only root can give a file away
			}
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := Open(dir, Trust{Owner: owner()}); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
	dir := directory(t, small)
	write(t, dir+"/.git/config", []byte("x"))
	os.Symlink("/etc/passwd", dir+"/.link")
	link := filepath.Join(t.TempDir(), "current")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{dir, link} {
		r, err := Open(name, Trust{Owner: owner()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fs.Stat(r.FS, "README.md"); err == nil {
			t.Error("what is no policy is kept")
		}
		if text, err := fs.ReadFile(r.FS, "open/decision.rego"); err != nil || string(text) != "package stockade.open\n" {
			t.Errorf("%q %v", text, err)
		}
	}
}

// What is kept comes back as it was, and damage to it is found.
func TestStore(t *testing.T) {
	s := newSigner(t)
	dir := t.TempDir() + "/revisions"
	store, err := OpenStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Open(write(t, t.TempDir()+"/b.tar.gz", s.sign(t, policies.FS, 5)), Trust{Keys: []Key{s.key}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := store.Put(r); err != nil {
			t.Fatal(err)
		}
	}
	got, err := store.Get(r.Digest)
	if err != nil {
		t.Fatal(err)
	}
	if got.Digest != r.Digest || got.Number != 5 || got.SignedBy != s.key.ID || got.Source != r.Source || got.Contract != r.Contract {
		t.Errorf("%+v", got)
	}
	if list, err := store.List(); err != nil || !slices.Equal(list, []string{r.Digest}) {
		t.Errorf("%v %v", list, err)
	}
	if err := store.Put(got); err != nil { // also once it has been read back
		t.Fatal(err)
	}
	name, _ := store.file(r.Digest)
	text, _ := os.ReadFile(name)
	wrong := 0
	for i := 0; i < len(text); i += 97 {
		changed := bytes.Clone(text)
		changed[i] ^= 0x20
		os.WriteFile(name, changed, 0o600)
		if r, err := store.Get(r.Digest); err == nil && r.Digest != got.Digest {
			t.Errorf("byte %d: %s", i, r.Digest)
		} else if err != nil {
			wrong++
		}
	}
	if wrong == 0 {
		t.Error("no damage was found")
	}
	if err := store.Remove(r.Digest); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Get(r.Digest); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	for _, digest := range []string{"", "sha256:../../etc/passwd", "sha256:00"} {
		if _, err := store.Get(digest); err == nil {
			t.Errorf("%q is kept", digest)
		}
	}
}

// Numbers only grow, and what once had one keeps it.
func TestRollback(t *testing.T) {
	store, err := OpenStore(t.TempDir() + "/revisions")
	if err != nil {
		t.Fatal(err)
	}
	rev := func(n int64, digest string) *Revision { return &Revision{Number: n, Digest: digest, Source: "x"} }
	for _, row := range []struct {
		r    *Revision
		want bool
	}{
		{rev(0, "a"), true}, {rev(0, "b"), true}, {rev(5, "c"), true}, {rev(5, "c"), true}, {rev(5, "d"), false},
		{rev(4, "c"), false}, {rev(0, "c"), false}, {rev(6, "c"), true}, {rev(5, "c"), false}, {&Revision{Digest: "own"}, true}, {rev(6, "x"), false}, {rev(7, "x"), true},
	} {
		a, err := store.Active()
		if err != nil {
			t.Fatal(err)
		}
		err = a.Newer(row.r)
		if (err == nil) != row.want || err != nil && !errors.Is(err, ErrRollback) {
			t.Errorf("%+v after %+v: %v", row.r, a, err)
		}
		if err == nil {
			if err := store.Activate(row.r); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func FuzzTarball(f *testing.F) {
	private, public, err := GenerateKey()
	if err != nil {
		f.Fatal(err)
	}
	key, _ := ParseKey(public)
	tarball, _, err := Sign(small, 1, private)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(tarball)
	limits := Limits{Bytes: 1 << 20, Files: 64}
	f.Fuzz(func(t *testing.T, b []byte) {
		files, err := unpackTarball(bytes.NewReader(b), limits)
		if err != nil {
			return
		}
		var size int64
		for name, text := range files {
			size += int64(len(text))
			if !fs.ValidPath(name) {
				t.Errorf("path %q", name)
			}
		}
		if size > limits.Bytes || len(files) > limits.Files {
			t.Errorf("%d files, %d bytes", len(files), size)
		}
		if _, err := verify(files, []Key{key}); err == nil && !bytes.Equal(b, tarball) {
			if again, err := packTarball(files); err != nil || !bytes.Equal(again, tarball) {
				t.Error("another bundle has a good signature")
			}
		}
	})
}

// Root reads what a supervisor keeps that is another user, as it is after an installation; to write there it takes the owner.
func TestKeptByAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		const why = "needs root: the directory belongs to another user"
		if os.Getenv("STOCKADE_NOSKIP") == "1" {
			t.Fatal("not skipped: ", why)
		}
		t.Skip(why)
	}
	s, dir := newSigner(t), t.TempDir()+"/revisions"
	store, err := OpenStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Open(write(t, t.TempDir()+"/b.tar.gz", s.sign(t, policies.FS, 5)), Trust{Keys: []Key{s.key}})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Put(r); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if got, err := Kept(dir, r.Digest); err != nil || got.Digest != r.Digest {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := Kept(dir, "sha256:"+strings.Repeat("0", 64)); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := OpenStore(dir); err == nil {
		t.Error("the directory of another user is written to")
	}
}
