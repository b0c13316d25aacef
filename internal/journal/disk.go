package journal

import (
	"os"

	"github.com/stockade-dev/stockade/internal/durable"
)

// disk is every operation by which an open journal changes what is stored. What the
// journal promises is an order among these; tests watch it, and make each of them fail.
type disk struct {
	create   func(name string) (*os.File, error)
	write    func(f *os.File, b []byte, off int64) (int, error)
	sync     func(f *os.File) error
	allocate func(f *os.File, size int64) error
	truncate func(f *os.File, size int64) error
	rename   func(from, to string) error
	remove   func(name string) error
	syncDir  func(dir *os.File) error
}

var realDisk = disk{
	create: func(name string) (*os.File, error) {
		return os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	},
	write:    (*os.File).WriteAt,
	sync:     durable.SyncData,
	allocate: durable.Allocate,
	truncate: (*os.File).Truncate,
	rename:   os.Rename,
	remove:   os.Remove,
	syncDir:  (*os.File).Sync,
}
