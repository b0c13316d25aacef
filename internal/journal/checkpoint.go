package journal

import (
	"bytes"
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
)

const (
	checkpointFile  = "checkpoints"
	checkpointTitle = "stockade journal/"
)

// checkpoint is the statement "the first size records have this Merkle root".
type checkpoint struct {
	origin string
	size   int64
	root   tlog.Hash

	at  int64  // offset in the file of checkpoints
	msg []byte // as it was signed, when it was read from there
}

func (c *checkpoint) text() string {
	return fmt.Sprintf("%s%s\n%d\n%s\n", checkpointTitle, c.origin, c.size, c.root)
}

func (c *checkpoint) sign(signer note.Signer) ([]byte, error) {
	return note.Sign(&note.Note{Text: c.text()}, signer)
}

// openCheckpoint believes a signed note in its canonical text.
func openCheckpoint(msg []byte, known note.Verifiers) (checkpoint, error) {
	text, err := openNote(msg, known)
	if err != nil {
		return checkpoint{}, err
	}
	return parseCheckpoint(text)
}

// openNote returns the text of a note that one of the verifiers signed. Only one spelling
// is accepted, so that a note in which anything was changed is not the same note: one
// signature, and its base64 without stray bits. Nil verifiers leave the signature to others.
func openNote(msg []byte, known note.Verifiers) (string, error) {
	if known == nil {
		_, err := note.Open(msg, note.VerifierList())
		unverified, ok := errors.AsType[*note.UnverifiedNoteError](err)
		if !ok {
			return "", err
		}
		return unverified.Note.Text, nil
	}
	n, err := note.Open(msg, known)
	if err != nil {
		return "", err
	}
	if len(n.Sigs) != 1 || len(n.UnverifiedSigs) != 0 {
		return "", flaw("not one signature")
	}
	if _, err := base64.StdEncoding.Strict().DecodeString(n.Sigs[0].Base64); err != nil {
		return "", flaw("signature is not spelled as it was written")
	}
	return n.Text, nil
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

// notes is what a checkpoint file holds.
type notes struct {
	signed []checkpoint
	end    int64 // where the next one goes
	torn   int64 // bytes behind, of a note that was not written to its end
}

// readCheckpoints reads the checkpoint file of a journal; one that never signed anything
// has none.
func readCheckpoints(dir string, known note.Verifiers) (notes, error) {
	data, err := os.ReadFile(filepath.Join(dir, checkpointFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return notes{}, err
	}
	signed, end, err := parseCheckpoints(data, known)
	if err != nil {
		return notes{signed, end, 0}, err
	}
	return notes{signed, end, int64(len(data)) - end}, nil
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
		c.at, c.msg = end, msg
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
	stored, err := readCheckpoints(dir, known)
	if err == nil && len(stored.signed) == 0 {
		err = ErrUnsigned
	}
	if err != nil {
		return nil, fmt.Errorf("last checkpoint: %w", err)
	}
	return stored.signed[len(stored.signed)-1].msg, nil
}
