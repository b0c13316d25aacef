package blob

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"os"

	"github.com/stockade-dev/stockade/internal/durable"
	"github.com/stockade-dev/stockade/internal/failpoint"
)

// spill is how much a writer holds in memory before it takes a file: content that is refused,
// or there already, mostly costs none.
const spill = 64 << 10

// writer is content being written. It ends with commit or abort.
type writer struct {
	store *Store
	sum   hash.Hash
	size  int64
	buf   []byte   // the content, until it outgrows spill
	file  *os.File // the content, from then on
	temp  string   // the name of file, until a rename gave it another
}

func (s *Store) writer() *writer { return &writer{store: s, sum: sha256.New()} }

// Write appends p. After an error, only abort is left.
func (w *writer) Write(p []byte) (int, error) {
	if w.file == nil && w.size+int64(len(p)) <= spill {
		w.buf = append(w.buf, p...)
	} else if err := w.writeFile(p); err != nil {
		return 0, fmt.Errorf("write blob: %w", err)
	}
	w.sum.Write(p)
	w.size += int64(len(p))
	return len(p), nil
}

func (w *writer) writeFile(p []byte) error {
	if err := w.store.room(int64(len(w.buf) + len(p))); err != nil {
		return err
	}
	if w.file == nil {
		name := w.store.temporary()
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o400)
		if err != nil {
			return err
		}
		w.file, w.temp = f, name
		if _, err := f.Write(w.buf); err != nil {
			return err
		}
		w.buf = nil
	}
	_, err := w.file.Write(p)
	return err
}

// commit stores the content under its reference. When it returns without error, content
// and name are durable. Content that is there already is not written a second time, but
// it is read, so that a reference never names something damaged.
func (w *writer) commit() (ref string, size int64, err error) {
	if err := w.settle(hex.EncodeToString(w.sum.Sum(nil))); err != nil {
		return "", 0, fmt.Errorf("commit blob: %w", err)
	}
	return reference(w.sum), w.size, nil
}

func (w *writer) settle(digest string) error {
	if there, err := w.store.renew(digest); there {
		return err
	}
	if w.file == nil {
		if err := w.writeFile(nil); err != nil {
			return err
		}
	}
	if err := durable.SyncData(w.file); err != nil {
		return err
	}
	failpoint.Hit("blob.synced")
	if err := w.store.place(w.temp, digest); err != nil {
		return err
	}
	w.temp = ""
	return nil
}

// abort drops what has not become content.
func (w *writer) abort() {
	if w.temp != "" {
		os.Remove(w.temp)
	}
	if w.file != nil {
		w.file.Close()
	}
}
