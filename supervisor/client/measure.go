package client

import (
	"bytes"
	"io"
	"os"
)

// measure returns the content and its size. done gives up what measuring took.
func measure(content io.Reader) (_ io.Reader, size int64, done func(), err error) {
	done = func() {}
	if s, ok := content.(io.Seeker); ok {
		if here, err := s.Seek(0, io.SeekCurrent); err == nil { // a pipe is a Seeker that cannot
			end, err := s.Seek(0, io.SeekEnd)
			if err == nil {
				_, err = s.Seek(here, io.SeekStart)
			}
			return sized(content, end-here), end - here, done, err
		}
	}
	file, err := os.CreateTemp("", "stockade-blob-")
	if err != nil {
		return nil, 0, done, err
	}
	os.Remove(file.Name()) // it lives as long as the descriptor
	done = func() { file.Close() }
	if size, err = io.Copy(file, content); err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		done()
		return nil, 0, func() {}, err
	}
	return sized(file, size), size, done, nil
}

// sized hides Close, because net/http closes what it sends, and says of nothing that it is
// nothing: a body of unknown size would travel in chunks.
func sized(r io.Reader, size int64) io.Reader {
	if size == 0 {
		return bytes.NewReader(nil)
	}
	return io.LimitReader(r, size)
}
