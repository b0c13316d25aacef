package blob

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strconv"
	"sync"

	"github.com/stockade-dev/stockade/internal/durable"
	"github.com/stockade-dev/stockade/internal/failpoint"
)

// spill is how much a Writer holds in memory before it takes a file. Every execution
// has two streams and nearly all of them end below it: they cost no system call.
const spill = 64 << 10

// Writer is content being written: one goroutine writes, any number read what is
// already there with ReadAt. It ends with Commit or Abort.
type Writer struct {
	store *Store

	mu   sync.RWMutex // guards what follows between Write and ReadAt
	sum  hash.Hash
	size int64
	buf  []byte   // the content, until it outgrows spill
	file *os.File // the content, from then on
	temp string   // the name of file, until a rename gave it another
	err  error    // the first failure, or errEnded: nothing more is written
}

var errEnded = errors.New("blob writer has ended")

// Create begins new content. The caller ends it with Commit or Abort. No file is made
// before the content needs one.
func (s *Store) Create() (*Writer, error) {
	return &Writer{store: s, sum: sha256.New()}, nil
}

// Write appends p. The first error is final.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return 0, w.err
	}
	if w.file == nil && w.size+int64(len(p)) <= spill {
		w.buf = append(w.buf, p...)
	} else if err := w.writeFile(p); err != nil {
		w.err = fmt.Errorf("write blob: %w", err)
		return 0, w.err
	}
	w.sum.Write(p)
	w.size += int64(len(p))
	return len(p), nil
}

func (w *Writer) writeFile(p []byte) error {
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

// ReadAt reads what was written so far, at the same time as Write: [io.EOF] means the
// end for now. It fails after Commit and Abort.
func (w *Writer) ReadAt(p []byte, off int64) (int, error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	switch {
	case errors.Is(w.err, errEnded):
		return 0, w.err
	case off < 0:
		return 0, fmt.Errorf("read blob: negative offset %s", strconv.FormatInt(off, 10))
	case off >= w.size:
		return 0, io.EOF
	}
	want := p[:min(int64(len(p)), w.size-off)] // a failed write may have left more in the file
	var n int
	var err error
	if w.file == nil {
		n = copy(want, w.buf[off:])
	} else if n, err = w.file.ReadAt(want, off); err != nil {
		return n, fmt.Errorf("read blob: %w", err)
	}
	if n < len(p) {
		err = io.EOF
	}
	return n, err
}

// Ref is the reference of the content so far.
func (w *Writer) Ref() string {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return reference(w.sum)
}

// Commit stores the content under its reference. When it returns without error, content
// and name are durable. Content that is there already is not written a second time, but
// it is read, so that a reference never names something damaged. Commit ends the writer
// whatever it returns.
func (w *Writer) Commit() (ref string, size int64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.end()
	if w.err != nil {
		return "", 0, w.err
	}
	ref, size = reference(w.sum), w.size
	if err := w.commit(hex.EncodeToString(w.sum.Sum(nil))); err != nil {
		return "", 0, fmt.Errorf("commit blob: %w", err)
	}
	return ref, size, nil
}

func (w *Writer) commit(digest string) error {
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

// Abort drops the content. After Commit, or a second time, it does nothing.
func (w *Writer) Abort() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end()
}

func (w *Writer) end() {
	if w.temp != "" {
		os.Remove(w.temp)
	}
	if w.file != nil {
		w.file.Close()
	}
	w.buf, w.file, w.temp, w.err = nil, nil, "", errEnded
}
