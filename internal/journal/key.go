package journal

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/stockade-dev/stockade/internal/durable"
)

// The key pair of a journal.
const (
	keyFile       = "key"     // signs checkpoints; 0600
	publicKeyFile = "key.pub" // verifies them: what an auditor keeps elsewhere
)

// openKey reads the key pair, and makes it for a new journal. A journal without its key
// is refused: a new key would vouch for records that the old one had not signed.
func (j *Journal) openKey() error {
	signer, public, err := readKey(j.dir)
	if errors.Is(err, fs.ErrNotExist) {
		names, listErr := segmentNames(j.dir)
		_, statErr := os.Stat(filepath.Join(j.dir, checkpointFile))
		if listErr != nil || len(names) > 0 || !errors.Is(statErr, fs.ErrNotExist) {
			return fmt.Errorf("the key is missing: %w", err)
		}
		if err := newKey(j.dir, j.opt.Origin); err != nil {
			return fmt.Errorf("make key: %w", err)
		}
		signer, public, err = readKey(j.dir)
	}
	j.signer, j.public = signer, public
	return err
}

// newKey makes the key pair of a journal, durably. The private half is last: where it
// is, the pair is complete. The public half may be read by whoever gets at it, as it may be
// copied: it is no secret, and what it is good for is to be elsewhere.
func newKey(dir, origin string) error {
	private, public, err := note.GenerateKey(rand.Reader, origin)
	if err != nil {
		return err
	}
	if err := durable.Replace(filepath.Join(dir, publicKeyFile), []byte(public+"\n"), 0o644); err != nil {
		return err
	}
	return durable.Create(filepath.Join(dir, keyFile), []byte(private+"\n"), 0o600)
}

// readKey returns the signer of a journal and the public key that goes with it.
func readKey(dir string) (note.Signer, string, error) {
	data, err := os.ReadFile(filepath.Join(dir, keyFile))
	if err != nil {
		return nil, "", err
	}
	private := strings.TrimSpace(string(data))
	signer, err := note.NewSigner(private)
	if err != nil {
		return nil, "", fmt.Errorf("key: %w", err)
	}
	// PRIVATE+KEY+name+hash+base64 of the algorithm, one byte, and the seed; of these
	// only base64 can hold a plus sign itself.
	fields := strings.SplitN(private, "+", 5)
	secret, err := base64.StdEncoding.DecodeString(fields[len(fields)-1])
	if err != nil || len(secret) != 1+ed25519.SeedSize {
		return nil, "", errors.New("key: not an Ed25519 key")
	}
	pair := ed25519.NewKeyFromSeed(secret[1:])
	public, err := note.NewEd25519VerifierKey(signer.Name(), pair.Public().(ed25519.PublicKey))
	if err != nil {
		return nil, "", fmt.Errorf("key: %w", err)
	}
	return signer, public, nil
}

// ReadPublicKey reads a public key from a file: the one named key.pub in a journal's
// directory, or a copy. Proof against whoever can write that directory needs a copy.
func ReadPublicKey(name string) (note.Verifier, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	v, err := note.NewVerifier(strings.TrimSpace(string(data)))
	if err != nil {
		return nil, fmt.Errorf("public key %s: %w", name, err)
	}
	return v, nil
}
