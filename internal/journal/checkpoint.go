package journal

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/stockade-dev/stockade/internal/durable"
)

// Files beside the segments.
const (
	keyFile        = "key"     // signs checkpoints; 0600
	publicKeyFile  = "key.pub" // verifies them: what an auditor keeps elsewhere
	checkpointFile = "checkpoints"
)

const checkpointTitle = "stockade journal/"

// checkpoint is the statement "the first size records have this Merkle root".
type checkpoint struct {
	origin string
	size   int64
	root   tlog.Hash

	at int64 // offset in the file of checkpoints
}

func (c *checkpoint) text() string {
	return fmt.Sprintf("%s%s\n%d\n%s\n", checkpointTitle, c.origin, c.size, c.root)
}

func (c *checkpoint) sign(signer note.Signer) ([]byte, error) {
	return note.Sign(&note.Note{Text: c.text()}, signer)
}

// openCheckpoint believes a signed note. Only one spelling is accepted, so that a note
// in which anything was changed is not the same note: one signature, its base64 without
// stray bits, and the canonical text.
func openCheckpoint(msg []byte, known note.Verifiers) (checkpoint, error) {
	n, err := note.Open(msg, known)
	if err != nil {
		return checkpoint{}, err
	}
	if len(n.Sigs) != 1 || len(n.UnverifiedSigs) != 0 {
		return checkpoint{}, flaw("not one signature")
	}
	if _, err := base64.StdEncoding.Strict().DecodeString(n.Sigs[0].Base64); err != nil {
		return checkpoint{}, flaw("signature is not spelled as it was written")
	}
	return parseCheckpoint(n.Text)
}

func parseCheckpoint(text string) (checkpoint, error) {
	lines := strings.Split(text, "\n")
	if len(lines) != 4 {
		return checkpoint{}, flaw("not a checkpoint")
	}
	var c checkpoint
	var errs [2]error
	c.origin = strings.TrimPrefix(lines[0], checkpointTitle)
	c.size, errs[0] = strconv.ParseInt(lines[1], 10, 64)
	c.root, errs[1] = tlog.ParseHash(lines[2])
	if errs != [2]error{} || c.size < 0 || c.text() != text {
		return checkpoint{}, flaw("not a checkpoint")
	}
	return c, nil
}

// readCheckpoints reads the checkpoint file of a journal; one that never signed anything
// has none.
func readCheckpoints(dir string, known note.Verifiers) (signed []checkpoint, end int64, err error) {
	data, err := os.ReadFile(filepath.Join(dir, checkpointFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, 0, err
	}
	return parseCheckpoints(data, known)
}

// parseCheckpoints reads signed notes, each followed by an empty line, in ascending
// order, up to end. What is behind is of a note that was not written to its end.
func parseCheckpoints(data []byte, known note.Verifiers) (signed []checkpoint, end int64, err error) {
	for {
		rest := data[end:]
		if tornNote(rest, end) {
			return signed, end, nil
		}
		msg, ok := cutNote(rest)
		if !ok {
			return signed, end, &CorruptError{File: checkpointFile, Seq: -1, Offset: end, Reason: "not a signed note"}
		}
		c, err := openCheckpoint(msg, known)
		if err == nil && len(signed) > 0 {
			if before := signed[len(signed)-1]; c.size <= before.size || c.origin != before.origin {
				err = flaw("checkpoint does not follow the one before it")
			}
		}
		if err != nil {
			return signed, end, &CorruptError{File: checkpointFile, Seq: -1, Offset: end, Reason: err.Error()}
		}
		c.at = end
		signed = append(signed, c)
		end += int64(len(msg)) + 1
	}
}

// noteLines is how many lines a stored note has: three of text, one empty, one
// signature; one more empty line divides it from the next.
const noteLines = 6

// cutNote returns the note that data begins with, if it is there to the end.
func cutNote(data []byte) ([]byte, bool) {
	lines := bytes.SplitAfterN(data, []byte("\n"), noteLines+1)
	if len(lines) <= noteLines || string(lines[noteLines-1]) != "\n" {
		return nil, false
	}
	return bytes.Join(lines[:noteLines-1], nil), true
}

// tornNote reports whether data, which stands at offset at, is what an interrupted write
// of the last note can leave: its beginning, or the whole with sectors of zeros where
// only the length of the file had become durable.
func tornNote(data []byte, at int64) bool {
	const sector = 512
	hole := bytes.IndexByte(data, 0)
	if hole < 0 {
		_, whole := cutNote(data)
		return !whole && beginsNote(data)
	}
	behind := bytes.TrimLeft(data[hole:], "\x00")
	end := len(data) - len(behind)
	return (hole == 0 || (at+int64(hole))%sector == 0) &&
		(len(behind) == 0 || (at+int64(end))%sector == 0) &&
		beginsNote(data[:hole]) && !bytes.Contains(behind, []byte(checkpointTitle))
}

// beginsNote reports whether a note that is not there to the end looks as a write that
// was cut short leaves it: every line as it must be, except that the last ends early.
func beginsNote(data []byte) bool {
	const (
		digits  = "0123456789"
		base64s = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
		hashLen = 44 // base64 of 32 bytes
		signLen = 92 // base64 of a 4-byte key hash and a 64-byte signature
	)
	begins := func(s, prefix string) bool {
		return strings.HasPrefix(s, prefix) || strings.HasPrefix(prefix, s)
	}
	only := func(s, set string, n int) bool { return strings.Trim(s, set) == "" && len(s) <= n }
	lines := strings.Split(string(data), "\n")
	for i, line := range lines {
		whole, ok := i < len(lines)-1, false
		switch i {
		case 0:
			ok = begins(line, checkpointTitle) && (!whole || len(line) > len(checkpointTitle))
		case 1:
			ok = only(line, digits, 19) && (!whole || line != "")
		case 2:
			ok = only(line, base64s, hashLen) && (!whole || len(line) == hashLen)
		case 3, 5:
			ok = line == ""
		case 4:
			_, sig, named := strings.Cut(strings.TrimPrefix(line, "— "), " ")
			ok = begins(line, "— ") && only(sig, base64s, signLen) && (!whole || named && len(sig) == signLen)
		}
		if !ok {
			return false
		}
	}
	return true
}

// LastCheckpoint returns the last signed note of a journal from its files alone. The error
// is [ErrUnsigned] when there is none, [*CorruptError] when known did not sign them all.
func LastCheckpoint(dir string, known note.Verifiers) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(dir, checkpointFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("last checkpoint: %w", err)
	}
	signed, _, err := parseCheckpoints(data, known)
	if err == nil && len(signed) == 0 {
		err = ErrUnsigned
	}
	if err != nil {
		return nil, fmt.Errorf("last checkpoint: %w", err)
	}
	msg, _ := cutNote(data[signed[len(signed)-1].at:])
	return msg, nil
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
