package bundle

import (
	"archive/zip"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/stockade-dev/stockade/internal/durable"
)

// Store is a private directory of revisions: those that something still decides by, whatever has become of where they
// came from, and the last that were active. It remembers how far revisions have come.
//
//	HEX.zip       a revision, by its digest; the comment of the archive has what its files do not say
//	active.json   [Active]
type Store struct{ dir string }

// Active is which revision was active last, and how far numbers have come.
type Active struct {
	Digest  string `json:"digest"`
	Files   string `json:"files"`
	Source  string `json:"source"`
	Over    bool   `json:"over,omitzero"`  // nothing is left that it decides
	Highest int64  `json:"highest"`        // number of any revision that ever was active
	Whose   string `json:"highest_digest"` // digest of that revision
}

const (
	archiveSuffix = ".zip"
	activeFile    = "active.json"
)

// OpenStore makes the directory if need be.
func OpenStore(dir string) (*Store, error) {
	if err := durable.PrivateDir(dir); err != nil {
		return nil, fmt.Errorf("revisions: %w", err)
	}
	return &Store{dir}, nil
}

// Kept reads a revision of a store whoever it belongs to: root looks at a supervisor that is another user. What it is its digest says.
func Kept(dir, digest string) (*Revision, error) { return (&Store{dir}).Get(digest) }

// about is what a revision's files do not say.
type about struct {
	Number   int64  `json:"number,omitzero"`
	SignedBy string `json:"signed_by,omitempty"`
	Source   string `json:"source,omitempty"`
}

func (s *Store) file(digest string) (string, error) {
	name, ok := strings.CutPrefix(digest, "sha256:")
	if sum, err := hex.DecodeString(name); !ok || err != nil || len(sum) != 32 {
		return "", fmt.Errorf("%.100q is no digest", digest)
	}
	return filepath.Join(s.dir, name+archiveSuffix), nil
}

// Put keeps a revision, durably. One that is there already is not written again.
func (s *Store) Put(r *Revision) error {
	name, err := s.file(r.Digest)
	if err != nil {
		return fmt.Errorf("keep revision: %w", err)
	}
	comment, err := json.Marshal(about{r.Number, r.SignedBy, r.Source})
	if err != nil {
		return fmt.Errorf("keep revision: %w", err)
	}
	whole, err := commented(r.archive, string(comment))
	if err != nil {
		return fmt.Errorf("keep revision: %w", err)
	}
	if there, err := os.ReadFile(name); err == nil && bytes.Equal(there, whole) {
		return nil
	}
	if err := durable.Replace(name, whole, 0o600); err != nil {
		return fmt.Errorf("keep revision: %w", err)
	}
	return nil
}

// Get returns a revision that is kept, and is what its name says. The error is [fs.ErrNotExist] when it is not there.
func (s *Store) Get(digest string) (*Revision, error) {
	name, err := s.file(digest)
	if err != nil {
		return nil, fmt.Errorf("kept revision: %w", err)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("kept revision: %w", err)
	}
	archive, err := zip.NewReader(bytes.NewReader(text), int64(len(text)))
	if err != nil {
		return nil, fmt.Errorf("kept revision %s: %w", digest, err)
	}
	var a about
	if err := json.Unmarshal([]byte(archive.Comment), &a); err != nil {
		return nil, fmt.Errorf("kept revision %s: %w", digest, err)
	}
	r := &Revision{Number: a.Number, SignedBy: a.SignedBy, Source: a.Source, archive: text}
	if err := r.unpack(); err != nil {
		return nil, fmt.Errorf("kept revision %s: %w", digest, err)
	}
	if r.Digest != digest {
		return nil, fmt.Errorf("kept revision %s: its content is %s", digest, r.Digest)
	}
	return r, nil
}

// List returns the digests of what is kept, the newest first.
func (s *Store) List() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("revisions: %w", err)
	}
	type kept struct {
		digest string
		at     int64
	}
	var list []kept
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), archiveSuffix)
		info, err := e.Info()
		if ok && err == nil {
			list = append(list, kept{"sha256:" + name, info.ModTime().UnixNano()})
		}
	}
	slices.SortFunc(list, func(a, b kept) int {
		if a.at != b.at {
			return int(min(max(b.at-a.at, -1), 1))
		}
		return strings.Compare(a.digest, b.digest)
	})
	digests := make([]string, len(list))
	for i, k := range list {
		digests[i] = k.digest
	}
	return digests, nil
}

// Remove forgets a revision.
func (s *Store) Remove(digest string) error {
	name, err := s.file(digest)
	if err == nil {
		err = os.Remove(name)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget revision: %w", err)
	}
	return nil
}

// Active returns what was active last: the zero value when nothing ever was.
func (s *Store) Active() (a Active, err error) {
	text, err := os.ReadFile(filepath.Join(s.dir, activeFile))
	if errors.Is(err, fs.ErrNotExist) {
		return a, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	if err != nil {
		return a, fmt.Errorf("active revision: %w", err)
	}
	return a, nil
}

// ErrRollback is why a revision is refused that is older than one that was active.
var ErrRollback = errors.New("older than what was active")

// Newer refuses a revision that is older than one that was active, and another one of the same number. What a program
// brings along is not compared: it has no number.
func (a Active) Newer(r *Revision) error {
	switch {
	case r.Source == "" || a.Highest == 0 || r.Number > a.Highest:
		return nil
	case r.Number == 0:
		return fmt.Errorf("it has no revision number, and %d was active: %w", a.Highest, ErrRollback)
	case r.Number < a.Highest:
		return fmt.Errorf("revision %d, and %d was active: %w", r.Number, a.Highest, ErrRollback)
	case r.Digest != a.Whose:
		return fmt.Errorf("it says that it is revision %d, which was another one (%s): %w", r.Number, a.Whose, ErrRollback)
	}
	return nil
}

// Activate remembers, durably, that a revision is active.
func (s *Store) Activate(r *Revision) error {
	return s.remember(func(a *Active) {
		a.Digest, a.Files, a.Source, a.Over = r.Digest, r.Files, r.Source, false
		if r.Number > a.Highest {
			a.Highest, a.Whose = r.Number, r.Digest
		}
	})
}

// Finish remembers that the revision that was active decides nothing any more.
func (s *Store) Finish() error { return s.remember(func(a *Active) { a.Over = true }) }

func (s *Store) remember(change func(*Active)) error {
	a, err := s.Active()
	if err != nil {
		return err
	}
	change(&a)
	text, err := json.Marshal(a, json.Deterministic(true))
	if err == nil {
		err = durable.Replace(filepath.Join(s.dir, activeFile), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("active revision: %w", err)
	}
	return nil
}

// commented is a zip archive with a comment.
func commented(archive []byte, comment string) ([]byte, error) {
	from, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range from.File {
		if err := w.Copy(f); err != nil {
			return nil, err
		}
	}
	if err := w.SetComment(comment); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
