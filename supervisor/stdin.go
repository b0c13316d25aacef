package supervisor

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/stockade-dev/stockade/internal/blob"
	"github.com/stockade-dev/stockade/internal/memfile"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// How much of blobs is held in memory to be read by commands.
const (
	stdinMemory  = 16 << 20  // of one command; a larger blob is fed through a pipe
	stdinsMemory = 256 << 20 // of all together; then smaller ones are, too
)

// stdin is what a command reads: a copy that is its own. The file of a blob would show the
// command a path of the host's and lend it a lock on the file, which all who read it share.
//
// Usually it is a sealed memory file, so that no goroutine has to feed a command that does
// not read, and no secret reaches a disk. What is too large for that comes
// through a pipe, whose goroutine ends with the execution, whether the command has read
// it all or not.
type stdin struct {
	file *os.File // the command's end until it has been handed over; nil reads end of file

	memory *budget
	held   int64 // of memory

	content io.ReadCloser  // of a blob that is fed
	pipe    io.WriteCloser // our end; nil while nothing is fed
	fed     chan error     // capacity 1
}

// budget is an amount of memory that many take from.
type budget struct{ used atomic.Int64 }

func (b *budget) take(size int64) bool {
	if b.used.Add(size) <= stdinsMemory {
		return true
	}
	b.used.Add(-size)
	return false
}

// openStdin makes what the command of req reads. The caller ends it.
func openStdin(req *api.Exec, store *blob.Store, memory *budget) (*stdin, error) {
	var content []byte
	ref := req.StdinRef
	switch in := req.Stdin; {
	case in == nil:
	case in.InlineText != nil:
		content = []byte(in.InlineText.Text)
	case in.InlineBytes != nil:
		content = in.InlineBytes.Bytes
	case in.SecretText != nil:
		content = []byte(in.SecretText.Text)
	case in.BlobRef != nil:
		ref = in.BlobRef.BlobRef
	}
	if ref != "" {
		return openBlobStdin(ref, store, memory)
	}
	if len(content) == 0 {
		return &stdin{}, nil
	}
	f, err := memoryFile(bytes.NewReader(content))
	if err != nil {
		return nil, api.Errorf(api.CodeInternalError, "stdin: %v", err)
	}
	return &stdin{file: f}, nil
}

func openBlobStdin(ref string, store *blob.Store, memory *budget) (*stdin, error) {
	// The record that names it comes after this look: retention must leave it until then.
	err := store.Touch(ref)
	var content io.ReadCloser
	var size int64
	if err == nil {
		content, size, err = store.Reader(ref)
	}
	switch {
	case errors.Is(err, blob.ErrNotFound):
		return nil, api.Errorf(api.CodeStdinRefNotFound, "there is no blob %s", ref)
	case errors.Is(err, blob.ErrMalformed):
		return nil, api.Errorf(api.CodeInvalidStdinRef, "%v", err)
	case err != nil:
		return nil, api.Errorf(api.CodeBlobFailed, "%v", err)
	}
	s := &stdin{memory: memory}
	if size <= stdinMemory && memory.take(size) {
		s.held = size
		s.file, err = memoryFile(content)
		content.Close()
	} else {
		s.content = content
	}
	if err != nil {
		_ = s.end()
		return nil, api.Errorf(api.CodeBlobFailed, "stdin: %v", err)
	}
	return s, nil
}

// memoryFile returns content as a file that nobody can change, to be read from its beginning.
func memoryFile(content io.Reader) (*os.File, error) {
	f, _, err := memfile.Of("stdin", content)
	if err != nil {
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// isFed reports whether the command reads from a pipe that has to be fed. The runner makes it, and has
// a duplicate of its other end: a supervisor that dies in the middle must not look like the end.
func (s *stdin) isFed() bool { return s.content != nil }

// feed begins to feed what is not in memory, and ends with close.
func (s *stdin) feed(pipe io.WriteCloser, close func()) {
	if s.content == nil {
		return
	}
	s.pipe, s.fed = pipe, make(chan error, 1)
	go func() {
		_, err := io.Copy(pipe, s.content)
		if !errors.Is(err, os.ErrClosed) { // by end: nobody reads, or somebody else is to go on
			pipe.Close()
			close() // the command reads end of file
		}
		s.fed <- err
	}()
}

// detach gives away what the command would have read, for a command that is fed by others too; nil
// when that is nothing. The caller closes it.
func (s *stdin) detach() (content io.ReadCloser) {
	if content = s.content; content == nil && s.file != nil {
		content = s.file
	}
	s.file, s.content = nil, nil
	return content
}

// handed closes our copy of the command's end: it would keep the pipe from breaking.
func (s *stdin) handed() {
	if s.file != nil {
		s.file.Close()
		s.file = nil
	}
}

// end gives everything back, and says why the command did not get all that it could have
// read, if it was not its own doing. A second end does nothing.
func (s *stdin) end() (err error) {
	s.handed()
	if s.pipe != nil {
		s.pipe.Close()
		err = <-s.fed
		s.pipe = nil
	}
	if s.content != nil {
		s.content.Close()
		s.content = nil
	}
	if s.memory != nil {
		s.memory.used.Add(-s.held)
		s.held = 0
	}
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) {
		return nil // the command ended, or closed it, without reading on
	}
	return err
}
