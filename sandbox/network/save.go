package network

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
)

// State is what another program in this process needs beside the files to go on with a Session.
type State struct {
	Network sandbox.Network // as narrowed
	IPv6    bool
	PID     int    // of the relay, which stays a child of this process; 0 of mode "none", -1 of one that has ended
	Calls   uint64 // that the relay has been asked
}

const reaped = -1

// Save stops the conversation with the relay, and returns what [Restore] needs. What the relay says meanwhile waits in its
// socket. The files, whose order matters, stay the Session's. No call may be in progress, and none may follow but Continue and
// Close.
func (s *Session) Save() (State, []*os.File, error) {
	state := State{Network: s.Network(), IPv6: s.ipv6}
	if s.relay == nil {
		return state, []*os.File{s.ns}, nil
	}
	p := s.relay
	// One that has ended is handed over too: its end is found again.
	if err := p.socket.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return State{}, nil, fmt.Errorf("suspend relay: %w", err)
	}
	<-p.silent()
	p.mu.Lock()
	defer p.mu.Unlock()
	if state.PID, state.Calls = reaped, p.last; p.os != nil && p.state == nil {
		state.PID = p.os.Pid
	}
	return state, []*os.File{s.ns, p.socket, p.words}, nil
}

// Continue undoes Save.
func (s *Session) Continue() {
	if s.relay != nil && s.relay.socket.SetReadDeadline(time.Time{}) == nil {
		s.relay.listen()
	}
}

// Restore goes on with what Save has returned in another program. It takes the files over, also if it fails: then the relay ends, and
// the session has no network. Of the options only Report matters.
func Restore(state State, files []*os.File, o Options) (_ *Session, err error) {
	defer func() {
		if err != nil {
			closeAll(files)
		}
	}()
	s := &Session{network: state.Network, ipv6: state.IPv6}
	if want := map[bool]int{true: 1, false: 3}[state.PID == 0]; len(files) != want {
		return nil, fmt.Errorf("network: %d files, not %d", len(files), want)
	}
	s.ns = files[0]
	if state.PID == 0 {
		return s, nil
	}
	child, err := found(state.PID)
	if err != nil {
		return nil, err
	}
	if s.relay, err = converse(child, files[1], files[2], o.Report); err != nil {
		return nil, err
	}
	s.relay.last = state.Calls
	s.relay.begun()
	return s, nil
}

// found finds a relay that another program in this process has started. It returns nil for one that has
// ended and been reaped.
func found(pid int) (*os.Process, error) {
	// A child that has not been reaped: its process id cannot be another's.
	err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	if pid == reaped || errors.Is(err, unix.ECHILD) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("relay %d: %w", pid, err)
	}
	child, err := os.FindProcess(pid)
	if err != nil {
		return nil, fmt.Errorf("relay %d: %w", pid, err)
	}
	return child, nil
}
