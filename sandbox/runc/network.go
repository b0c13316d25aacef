package runc

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/network"
)

// connect gives the session its network. Init's namespace is there by now, and nothing of the caller's has
// run in it; what leads out of it is a relay, in init's group and under the session's ceilings, as an id of the session's that
// no execution can have.
func (o *opening) connect() error {
	options, err := o.r.networkOptions(o.session)
	if err != nil {
		return err
	}
	ns, err := os.Open("/proc/" + strconv.Itoa(o.session.box.pid) + "/ns/net")
	if err != nil {
		return err
	}
	defer ns.Close()
	if o.spec.Network.Mode != "none" {
		if o.r.relay == nil {
			return sandbox.Errorf(sandbox.CodeUnsupported, "network %s: this runner has no relay", o.spec.Network.Mode)
		}
		group, err := os.Open(o.session.groups.Paths()[""] + "/init")
		if err != nil {
			return err
		}
		defer group.Close()
		options.Group, options.Place = group, o.session.groups.JoinV1
	}
	if o.session.network, err = network.Open(o.ctx, ns, o.spec.Network, options); err != nil {
		return err
	}
	o.undo.Add(o.session.network.Close)
	return nil
}

// networkOptions are those that also a runner needs which takes over.
func (r *Runner) networkOptions(s *session) (network.Options, error) {
	o := network.Options{Relay: r.relay, UID: int(s.base + sandbox.InitUID), Report: s.hearRelay}
	for _, text := range r.options.Ceiling.NetworkDenied {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return o, fmt.Errorf("ceiling: network_denied: %w", err)
		}
		o.Denied = append(o.Denied, prefix)
	}
	return o, nil
}

// hearRelay takes down what the relay has refused, for the execution whose socket it was.
func (s *session) hearRelay(e network.Event) {
	if e.Allowed || e.Rule == "" || e.Rule == network.RuleUnreachable {
		return
	}
	d := sandbox.Denial{Layer: "network", Rule: e.Rule, Object: e.Object, Errno: e.Errno}
	if e.DNS {
		d.Layer = "dns"
	}
	if e.Rule == network.RuleNotGranted {
		d.Grant = "network:egress " + e.Object
	}
	if e.Rule == network.RuleEnded { // which executions ran without, they are asked at their end
		s.tell("session %s: its relay has ended, and with it its network", s.spec.Session)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found := false
	for _, x := range s.leaves {
		if x.group == e.Group {
			x.denials.add(d)
			found = true
		}
	}
	if !found { // whose it was has gone, or was too quick to be found: the relay counts it all the same
		s.stray.add(d)
	}
}

// connected reports whether the session has a way out.
func (s *session) connected() bool { return s.spec.Network.Mode != "none" }

// number finds out by which number the relay knows the execution: that of its group.
func (x *execution) number() error {
	if !x.session.connected() {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Stat(x.session.groups.Paths()[""]+"/x/"+x.leaf.Name(), &st); err != nil {
		return fmt.Errorf("group of an execution: %w", err)
	}
	x.group = st.Ino
	return nil
}

// relayWithin bounds the wait for what the relay has to say of an execution.
const relayWithin = time.Second

// traffic is what went through the relay for the execution. When it returns, what was refused to it has been
// taken down, and also if it ran when there was no relay any more.
func (x *execution) traffic() sandbox.Traffic {
	if !x.session.connected() {
		return sandbox.Traffic{}
	}
	ctx, cancel := context.WithTimeout(context.Background(), relayWithin)
	defer cancel()
	t, _ := x.session.network.Traffic(ctx, x.group) // of a relay that is gone nobody knows any more
	if x.session.network.Lost() {
		x.session.mu.Lock()
		defer x.session.mu.Unlock()
		x.denials.add(sandbox.Denial{Layer: "network", Rule: sandbox.RuleNetworkLost, Errno: unix.ErrnoName(unix.ECONNREFUSED)})
	}
	return t
}

// Narrow takes a part of a session's network away.
func (r *Runner) Narrow(ctx context.Context, session string, n sandbox.Network) (int64, error) {
	s, err := r.session(session)
	if err != nil {
		return 0, err
	}
	cut, err := s.network.Narrow(ctx, n)
	return int64(cut), err
}
