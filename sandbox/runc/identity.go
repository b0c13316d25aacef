package runc

import (
	"github.com/stockade-dev/stockade/internal/thread"
	"github.com/stockade-dev/stockade/sandbox"
)

// as calls fn under the file system identity of c.
func as(c sandbox.Caller, fn func() error) error { return thread.As(c, fn) }

// apart calls fn in a mount namespace of its own, which goes with it.
func apart(fn func() error) error { return thread.Apart(fn) }
