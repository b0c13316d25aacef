package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Listener accepts connections of one uid, and of root.
type Listener struct {
	socket *net.UnixListener
	uid    uint32
	shared *progress

	suspensions chan suspension
	pending     *suspension   // taken up by Serve, and not answered
	current     *server       // of the daemon that was connected when Serve was suspended, or nil
	next        *net.UnixConn // the daemon that waited then, or nil
}

func newListener(l *net.UnixListener, uid uint32) *Listener {
	return &Listener{socket: l, uid: uid, shared: newProgress(), suspensions: make(chan suspension)}
}

// Listen makes the runner's socket at path, mode 0600, for the daemon's uid. A dead
// socket in its place is replaced; a living one is an error. The caller closes the Listener.
func Listen(path string, uid uint32) (*Listener, error) {
	if err := removeDead(path); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("listen %s: %w", path, err)
	}
	// Until here the mode is the umask's. Whoever connects in that moment still has to be admitted.
	err = os.Chmod(path, 0o600)
	if err == nil && uid != uint32(os.Geteuid()) {
		err = os.Chown(path, int(uid), -1)
	}
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("listen %s: %w", path, err)
	}
	return newListener(l, uid), nil
}

func removeDead(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if st.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("listen %s: exists and is no socket", path)
	}
	if conn, err := net.Dial("unixpacket", path); err == nil {
		conn.Close()
		return fmt.Errorf("listen %s: another runner listens there", path)
	}
	return os.Remove(path)
}

// Close gives the socket up. Serve ends of it.
func (l *Listener) Close() error { return l.socket.Close() }

// admit returns the next connection from a peer that may speak to the runner. Others
// are closed without a word.
func (l *Listener) admit() (*net.UnixConn, error) {
	for {
		conn, err := l.socket.AcceptUnix()
		if err != nil {
			return nil, err
		}
		cred, err := peer(conn)
		if err == nil && l.allows(cred.Uid) {
			return conn, nil
		}
		conn.Close()
	}
}

func (l *Listener) allows(uid uint32) bool { return uid == l.uid || uid == 0 }

// peer returns what the kernel recorded of the peer: when it connected, or when it began to listen.
func peer(conn *net.UnixConn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return cred, errors.Join(cerr, err)
}
