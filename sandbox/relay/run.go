package relay

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/packet"
)

// Exit statuses.
const (
	exitDone       = 0 // the control socket has ended
	exitPrivileged = 2 // it was started with privileges that it must not have
	exitFailed     = 3
)

// descriptors is what a relay needs at most: of each connection two sockets and two pipes to splice through.
const descriptors = 6*maxConnections + 2*maxQuestions + 64

// Run is the process: it returns its exit status.
func Run() int {
	if err := confine(); err != nil {
		fmt.Fprintln(os.Stderr, "stockade-relay:", err)
		return exitPrivileged
	}
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "stockade-relay:", err)
		return exitFailed
	}
	return exitDone
}

// confine gives up what can be given up without privilege, and makes sure that the parent has taken the rest.
func confine() error {
	// Strays first, while no descriptor of ours is open.
	if err := unix.CloseRange(Control+1, ^uint(0), 0); err != nil {
		return fmt.Errorf("close what was inherited: %w", err)
	}
	if _, err := unix.FcntlInt(Control, unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
		return fmt.Errorf("keep the control socket: %w", err)
	}
	runtime.GOMAXPROCS(2)        // threads count as the session's processes
	debug.SetMemoryLimit(memory) // and memory as its memory
	debug.SetMaxThreads(64)
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("dumpable: %w", err)
	}
	for _, l := range []struct {
		resource int
		most     uint64
	}{{unix.RLIMIT_CORE, 0}, {unix.RLIMIT_NOFILE, descriptors}, {unix.RLIMIT_FSIZE, 64 << 10}} {
		var now syscall.Rlimit
		if err := syscall.Getrlimit(l.resource, &now); err != nil {
			return fmt.Errorf("rlimit %d: %w", l.resource, err)
		}
		most := min(l.most, now.Max)
		// By package syscall: it remembers what the runtime raised.
		if err := syscall.Setrlimit(l.resource, &syscall.Rlimit{Cur: most, Max: most}); err != nil {
			return fmt.Errorf("rlimit %d: %w", l.resource, err)
		}
	}
	if err := powerless(); err != nil {
		return err
	}
	return restrict() // last, because it refuses what came before
}

// powerless looks for what this process could do beyond its user.
func powerless() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	for _, s := range sets {
		if s.Effective|s.Permitted|s.Inheritable != 0 {
			return fmt.Errorf("has capabilities: %+v", sets)
		}
	}
	for c := uintptr(0); ; c++ {
		set, _, errno := syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_READ, c, 0)
		if errno != 0 { // the last capability of this kernel was the one before
			break
		}
		if set != 0 {
			return fmt.Errorf("capability %d can be had", c)
		}
	}
	if nnp, _, _ := syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0, 0); nnp != 1 {
		return fmt.Errorf("no_new_privs is %d", nnp)
	}
	if os.Getuid() == 0 || os.Getgid() == 0 {
		return fmt.Errorf("is user %d of group %d", os.Getuid(), os.Getgid())
	}
	if groups, err := os.Getgroups(); err != nil || len(groups) > 0 {
		return fmt.Errorf("has groups: %v %v", groups, err)
	}
	return nil
}

// serve is the life of the process. It returns nil when the parent has gone.
func serve() error {
	if err := unix.SetNonblock(Control, true); err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	control, err := packet.NewConn(os.NewFile(Control, "control"))
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	order, files, err := receive(control)
	if err != nil || order == nil {
		return err
	}
	if order.Start == nil || len(files) != order.Start.Files() {
		return fmt.Errorf("start: %d descriptors", len(files))
	}
	whose, err := newDiag(files[fileDiag])
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	r, err := newRelay(*order.Start, whose)
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	failed := make(chan error, len(files)+2)
	if err := r.listen(files, failed); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	go func() { failed <- r.write(control) }()
	go func() { failed <- r.obey(control) }()
	look := time.NewTicker(lookEvery)
	for {
		select {
		case err := <-failed:
			return err
		case <-look.C:
			r.look()
		}
	}
}

// receive returns nil at the end of the socket.
func receive(control *packet.Conn) (*Order, []*os.File, error) {
	b, fds, err := control.Receive()
	if err != nil {
		return nil, nil, nil // EOF, or a reset: the parent has gone
	}
	var files []*os.File
	for _, fd := range fds {
		// Otherwise the runtime does not poll it.
		if err := unix.SetNonblock(fd, true); err != nil {
			return nil, nil, fmt.Errorf("descriptor %d: %w", fd, err)
		}
		files = append(files, os.NewFile(uintptr(fd), "inherited"))
	}
	var o Order
	if err := Decode(b, &o); err != nil {
		return nil, nil, err
	}
	return &o, files, nil
}

// listen serves the sockets of the session's namespace.
func (r *relay) listen(files []*os.File, failed chan<- error) error {
	for i, f := range files[fileTCP4:] {
		i += fileTCP4
		if i == fileUDP4 || i == fileUDP6 {
			c, err := net.FilePacketConn(f)
			if err != nil {
				return err
			}
			go func() { failed <- r.serveUDP(c.(*net.UDPConn)) }()
		} else {
			l, err := net.FileListener(f)
			if err != nil {
				return err
			}
			serve := r.serve
			if i == fileQuestions4 || i == fileQuestions6 {
				serve = r.serveQuestions
			}
			go func() { failed <- r.accept(l.(*net.TCPListener), serve) }()
		}
		f.Close() // it has been duplicated
	}
	return nil
}

// write tells the parent what there is to tell, in order.
func (r *relay) write(control *packet.Conn) error {
	r.notices <- Notice{} // ready
	for n := range r.notices {
		b, err := Encode(n)
		if err == nil {
			err = control.Send(b)
		}
		if err != nil {
			return nil // the parent has gone
		}
	}
	return nil
}

// obey carries out orders until the parent has gone.
func (r *relay) obey(control *packet.Conn) error {
	for {
		o, _, err := receive(control)
		if err != nil || o == nil {
			return err
		}
		switch {
		case o.Narrow != nil:
			cut, err := r.narrow(*o.Narrow)
			if err != nil {
				return err // the parent cannot be understood: there is no network
			}
			r.notices <- Notice{Call: o.Call, Cut: cut}
		case o.Traffic != nil:
			t := r.traffic(*o.Traffic)
			r.notices <- Notice{Call: o.Call, Traffic: &t}
		case o.Forget != nil:
			r.forget(*o.Forget)
		default:
			return fmt.Errorf("an order of nothing")
		}
	}
}
