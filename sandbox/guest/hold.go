package guest

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/packet"
)

// A holder is the first process of a session's user namespace, and holds it, and later
// the cgroup namespace, until somebody has opened them. It is started in a new user
// namespace, in which it has CAP_SYS_ADMIN and CAP_SYS_RESOURCE, and with its end of a
// Pair as descriptor 3. One byte each, and what stands beside it:
//
//	runner                                holder
//	  │◀──────────────────────────────── u ─┤  no user namespace can be made in this one; the limit, as it was read
//	  │  c                                  │  the holder is in the session's groups
//	  ├────────────────────────────────────▶│  unshare: they are the root of its cgroup namespace
//	  │◀──────────────────────────────── c ─┤
//	  │  (opens /proc/PID/ns/{user,cgroup}) │
//	  ╳  end of file                        │  exits
//
// A step that fails is answered by e, what failed, and the holder exits.
const (
	holdUser   = 'u'
	holdCgroup = 'c'
	holdError  = 'e'
)

// maxUserNamespaces is the limit of the user namespace of whoever opens it, in whichever
// proc.
const maxUserNamespaces = "/proc/sys/user/max_user_namespaces"

// Hold is the holder's life, and returns its exit status. The caller has locked the main
// goroutine to the main thread, whose namespaces are what /proc/PID/ns shows.
func Hold() int {
	limit, err := closeUserNamespaces()
	if err != nil {
		return holdFailed(maxUserNamespaces, err)
	}
	if err := packet.Send(socketFD, append([]byte{holdUser}, limit...)); err != nil {
		return 1
	}
	buf := new(packet.Buffer)
	for {
		msg, fds, err := buf.Receive(socketFD)
		packet.CloseAll(fds)
		if err != nil || string(msg) != string(holdCgroup) {
			return 0
		}
		if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
			return holdFailed("unshare cgroup namespace", err)
		}
		if err := packet.Send(socketFD, []byte{holdCgroup}); err != nil {
			return 1
		}
	}
}

// closeUserNamespaces lets nobody make a user namespace below this one: seccomp cannot
// see the flags of clone3. It returns what the limit then is.
func closeUserNamespaces() (limit string, err error) {
	if err := os.WriteFile(maxUserNamespaces, []byte("0\n"), 0); err != nil {
		return "", err
	}
	got, err := os.ReadFile(maxUserNamespaces)
	return strings.TrimSpace(string(got)), err
}

func holdFailed(op string, err error) int {
	_ = packet.Send(socketFD, append([]byte{holdError}, op+": "+err.Error()...))
	return 1
}

// Holder is the runner's end of the conversation with a holder. The caller closes it; the
// holder ends with it.
type Holder struct {
	file   *os.File
	socket *packet.Conn
}

// NewHolder starts the conversation on our end of a Pair, which the Holder owns from now on.
func NewHolder(ours *os.File) (*Holder, error) {
	socket, err := packet.NewConn(ours)
	if err != nil {
		return nil, err
	}
	return &Holder{ours, socket}, nil
}

// User waits until the user namespace stands, and returns how many others can be made in it.
func (h *Holder) User(ctx context.Context) (below int64, err error) {
	limit, err := h.expect(ctx, holdUser)
	if err == nil {
		below, err = strconv.ParseInt(limit, 10, 64)
	}
	return below, err
}

// Cgroup makes the groups that the holder is in the root of its new cgroup namespace.
func (h *Holder) Cgroup(ctx context.Context) error {
	if err := h.socket.Send([]byte{holdCgroup}); err != nil {
		return fmt.Errorf("hold: %w", err)
	}
	_, err := h.expect(ctx, holdCgroup)
	return err
}

// Close ends the holder. Namespaces that something else refers to live on.
func (h *Holder) Close() error { return h.socket.Close() }

// expect waits for a byte, and returns what stands beside it.
func (h *Holder) expect(ctx context.Context, want byte) (string, error) {
	stop := context.AfterFunc(ctx, func() { _ = h.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	msg, fds, err := h.socket.Receive()
	packet.CloseAll(fds)
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil:
		return "", fmt.Errorf("hold: %w", err)
	case len(msg) > 0 && msg[0] == want:
		return string(msg[1:]), nil
	case len(msg) > 0 && msg[0] == holdError:
		return "", fmt.Errorf("hold: %s", msg[1:])
	}
	return "", fmt.Errorf("hold: unexpected answer %q", msg)
}
