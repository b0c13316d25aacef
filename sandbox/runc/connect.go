package runc

import (
	"context"
	"errors"
	"os"
	"syscall"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/guest"
)

// Connect makes a connection to a port of a session's loopback, from inside.
func (r *Runner) Connect(ctx context.Context, id string, port uint16) (*os.File, error) {
	s, err := r.session(id)
	if err != nil {
		return nil, err
	}
	socket, err := s.init.Connect(ctx, port)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, sandbox.Errorf(sandbox.CodeNotListening, "nothing listens on port %d of the session", port)
	case errors.Is(err, guest.ErrGone):
		return nil, errEnded
	case err != nil:
		return nil, sandbox.Errorf(sandbox.CodeNetwork, "port %d of the session: %v", port, err)
	}
	return socket, nil
}
