// Package bundle reads a policy as it comes from outside: a directory or a tarball in OPA's bundle format,
// with a manifest and, where keys are trusted, a signature.
//
// It promises that a [Revision] is what its signature or its owner vouches for: every byte is in memory before the
// first is judged, a signature covers exactly the files that are there, and nothing is parsed as Rego, here or by
// anybody after, before that is certain. What comes in is bounded in size and number.
//
// It does not say whether a policy is any good (package rego does), nor whether it is newer than the last one (the
// supervisor remembers that).
package bundle

import (
	"archive/zip"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	opa "github.com/open-policy-agent/opa/v1/bundle"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// Revision is one revision of a policy, verified and held in memory.
type Revision struct {
	FS       fs.FS  // its modules, tests, data and manifest
	Digest   string // sha256:<hex> of what decides: what receipts name
	Data     string // sha256:<hex> of the data alone
	Files    string // sha256:<hex> of all its files, tests and manifest included
	Number   int64  // the manifest's revision; 0: it has none
	Contract int    // with the supervisor, as data.stockade_contract says
	SignedBy string // [Key.ID]; "" when no signature was asked for
	Live     Live   // what it says of sessions that are open when it becomes active
	Source   string // what it was read from; "" for the shipped library

	archive []byte // what FS reads
}

// Live is what becomes of an open session that would get less under a revision, when that becomes active: the document
// data.activation. The words are those of [api.PolicyActivate].
type Live struct {
	Default  string            `json:"live,omitempty"`     // "" means that it is kept
	Profiles map[string]string `json:"profiles,omitempty"` // by the session's profile
}

// Of is the word for a session of a profile.
func (l Live) Of(profile string) string { return cmp.Or(l.Profiles[profile], l.Default, api.LiveKeep) }

func (l Live) check() error {
	for _, word := range append(slices.Collect(maps.Values(l.Profiles)), l.Default) {
		if !slices.Contains([]string{"", api.LiveKeep, api.LiveNarrow, api.LiveTerminate}, word) {
			return fmt.Errorf("data.activation: %q is none of keep, narrow and terminate", word)
		}
	}
	return nil
}

// Trust is what must be true of a bundle. The zero value takes what is unsigned, and belongs to root.
type Trust struct {
	Keys   []Key  // one of them must have signed it; none: a signature is not asked for, and not looked at
	Owner  uint32 // who may own it, beside root
	Limits Limits
}

// Limits bound what a bundle may hold.
type Limits struct {
	Bytes int64 // of all its files, unpacked; 0 means 64 MiB
	Files int   // and directories; 0 means 4096
}

const (
	defaultBytes = 64 << 20
	defaultFiles = 4096
	maxPath      = 512
	maxDepth     = 32
)

func (l Limits) orDefault() Limits {
	if l.Bytes == 0 {
		l.Bytes = defaultBytes
	}
	if l.Files == 0 {
		l.Files = defaultFiles
	}
	return l
}

// ErrUntrusted is why a bundle is refused for who made it: the signature, the owner, the mode.
var ErrUntrusted = errors.New("not to be trusted")

// The files of a bundle that say something about it.
const (
	manifestFile   = ".manifest"
	signaturesFile = ".signatures.json"
)

// Open reads the bundle at name, a directory or a tarball (.tar.gz, .tgz).
func Open(name string, t Trust) (*Revision, error) {
	r, err := open(name, t)
	if err != nil {
		return nil, fmt.Errorf("bundle %s: %w", name, err)
	}
	return r, nil
}

func open(name string, t Trust) (*Revision, error) {
	t.Limits = t.Limits.orDefault()
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	read := readTarball
	if info.IsDir() {
		read = readDirectory
	}
	files, err := read(name, t)
	if err != nil {
		return nil, err
	}
	return revision(files, name, t)
}

// Of is the revision of files that need no vouching for, such as those that a program brings along.
func Of(fsys fs.FS) (*Revision, error) {
	files := map[string][]byte{}
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !relevant(name) {
			return err
		}
		files[name], err = fs.ReadFile(fsys, name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("bundle: %w", err)
	}
	r, err := revision(files, "", Trust{Limits: Limits{}.orDefault()})
	if err != nil {
		return nil, fmt.Errorf("bundle: %w", err)
	}
	return r, nil
}

// revision verifies files, and makes a revision of those that say anything.
func revision(files map[string][]byte, source string, t Trust) (*Revision, error) {
	r := &Revision{Source: source}
	var err error
	if len(t.Keys) > 0 {
		if r.SignedBy, err = verify(files, t.Keys); err != nil {
			return nil, err
		}
	}
	if r.Number, err = number(files[manifestFile], r.SignedBy != ""); err != nil {
		return nil, err
	}
	if err := foreign(files); err != nil {
		return nil, err
	}
	maps.DeleteFunc(files, func(name string, _ []byte) bool { return !relevant(name) })
	if r.archive, err = pack(files); err != nil {
		return nil, err
	}
	return r, r.unpack()
}

// unpack reads what the archive says of itself.
func (r *Revision) unpack() error {
	archive, err := zip.NewReader(bytes.NewReader(r.archive), int64(len(r.archive)))
	if err != nil {
		return err
	}
	r.FS = archive
	files := sha256.New()
	for _, f := range archive.File { // in order of their names: see pack
		text, err := fs.ReadFile(archive, f.Name)
		if err != nil {
			return err
		}
		fmt.Fprintf(files, "%d %s %d\n", len(f.Name), f.Name, len(text))
		files.Write(text)
	}
	r.Files = "sha256:" + hex.EncodeToString(files.Sum(nil))
	b, err := rego.ReadData(archive)
	if err != nil {
		return err
	}
	if r.Contract, err = rego.ContractOf(b); err != nil {
		return err
	}
	if _, err := b.DataAt("activation", &r.Live); err != nil {
		return err
	}
	r.Digest, r.Data = b.Digest, b.DataDigest
	return r.Live.check()
}

// pack makes one archive of files, the same for the same files.
func pack(files map[string][]byte) ([]byte, error) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate})
		if err != nil {
			return nil, err
		}
		if _, err := f.Write(files[name]); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// relevant reports whether a file belongs to what a revision is made of.
func relevant(name string) bool {
	if name == manifestFile {
		return true
	}
	return !hidden(name) && (path.Ext(name) == ".rego" || path.Ext(name) == ".json")
}

// hidden reports a file that nobody reads: one whose name, or that of a directory above, begins with a dot.
func hidden(name string) bool {
	return name != manifestFile && name != signaturesFile && (strings.HasPrefix(name, ".") || strings.Contains(name, "/."))
}

// foreign refuses what OPA would decide by and we do not read: the two would not be the same policy.
func foreign(files map[string][]byte) error {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		switch base := path.Base(name); {
		case base == opa.WasmFile || base == opa.PlanFile || base == opa.PlanProtoFile:
			return fmt.Errorf("%s: compiled policy is not taken; only Rego is", name)
		case base == "data.yaml" || base == "data.yml":
			return fmt.Errorf("%s: data is written as JSON", name)
		case name == "patch.json":
			return errors.New("patch.json: a delta bundle is not taken; a revision is whole")
		case name == opa.ManifestProtoExt:
			return fmt.Errorf("%s: the manifest is written as JSON, in %s", name, manifestFile)
		}
	}
	return nil
}

// number is the revision of a manifest. OPA lets it be any text; to know which of two is newer takes a number, which is
// demanded of what is signed: an old bundle has a good signature for ever.
func number(manifest []byte, demanded bool) (int64, error) {
	var m opa.Manifest
	if len(manifest) > 0 {
		if err := json.Unmarshal(manifest, &m); err != nil {
			return 0, fmt.Errorf("%s: %w", manifestFile, err)
		}
	}
	if v := m.RegoVersion; v != nil && *v != 1 {
		return 0, fmt.Errorf("%s: rego_version %d; only 1 is known", manifestFile, *v)
	}
	for file, v := range m.FileRegoVersions {
		if v != 1 {
			return 0, fmt.Errorf("%s: rego_version %d of %s; only 1 is known", manifestFile, v, file)
		}
	}
	if len(m.WasmResolvers) > 0 {
		return 0, fmt.Errorf("%s: compiled policy is not taken; only Rego is", manifestFile)
	}
	n, err := strconv.ParseInt(m.Revision, 10, 64)
	if (err != nil || n < 1) && demanded {
		return 0, fmt.Errorf("%s: revision %q: a signed bundle has a number from 1 on, which grows with every change", manifestFile, m.Revision)
	}
	return max(n, 0), nil
}
