package supervisor

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// host.session.narrow

// narrowLimit is how long the relay may take to let go.
const narrowLimit = 10 * time.Second

func planNarrow(_ *Supervisor, c *call) *refusal {
	if more := beyond(c.session.granted().Network, c.req.Narrow.Network); more != "" {
		return denied(api.Deny{Code: api.CodeNotNarrower, Subject: more, Message: "the session does not have it"})
	}
	return nil
}

// actNarrow takes a part of the network away and then says so: a session never has more than its grant says, and a restart
// between the two leaves it less.
func actNarrow(ctx context.Context, s *Supervisor, c *call) (api.Payload, *api.Error) {
	cut, fault := s.narrowTo(ctx, c.session, c.req.Narrow.Network)
	if fault != nil {
		return failedControl(fault.Code, ""), fault
	}
	return api.Payload{Control: &api.ControlResult{Status: api.ControlNarrowed, Count: cut}}, nil
}

// narrowTo leaves a session so much of its network, and returns how many connections that cut off.
func (s *Supervisor) narrowTo(ctx context.Context, ses *session, to api.GrantNetwork) (cut int64, fault *api.Error) {
	ses.narrowing.Lock()
	defer ses.narrowing.Unlock()
	if fault := ses.usable(s.now()); fault != nil {
		return 0, fault
	}
	if more := beyond(ses.granted().Network, to); more != "" { // somebody else was first
		return 0, api.Errorf(api.CodeNotNarrower, "the session has been narrowed meanwhile, and does not have %s", more)
	}
	ctx, cancel := context.WithTimeout(ctx, narrowLimit)
	defer cancel()
	cut, err := s.launcher.Narrow(ctx, ses.id, to.Spec())
	if errors.Is(err, context.DeadlineExceeded) {
		return 0, api.Errorf(api.CodeNetworkFailed, "the network was not narrowed within %v; it may be by now", narrowLimit)
	}
	if err != nil {
		return 0, runnerError(err)
	}
	if _, err := s.record(s.ctx, s.journal.Settle, &ledger.Narrowed{Header: ledger.At(s.now()), SessionID: ses.id, Network: to}); err != nil {
		return 0, faultOf(err)
	}
	ses.narrow(to)
	return cut + ses.cutLanes(to), nil
}

// narrow makes n the network of the grant. Who has the grant keeps the one that he has.
func (s *session) narrow(n api.GrantNetwork) {
	s.mu.Lock()
	defer s.mu.Unlock()
	grant := *s.grant
	grant.Network = n
	s.grant = &grant
	s.narrowed++
}

// beyond names the first thing that one network has and another has not, or is "" when it is within it.
func beyond(has, wants api.GrantNetwork) string {
	all, outer := wants.Spec(), has.Spec()
	if !(sandbox.Network{Mode: all.Mode}).Within(outer) {
		return "network:" + all.Mode
	}
	if !wants.Forward.Within(has.Forward) {
		return "forward"
	}
	for _, d := range all.Allow {
		if !(sandbox.Network{Mode: all.Mode, Allow: []sandbox.Destination{d}}).Within(outer) {
			return "destination:" + destination(d)
		}
	}
	return ""
}

// destination is a destination as people write it: example.org:80,443.
func destination(d sandbox.Destination) string {
	ports := make([]string, len(d.Ports))
	for i, p := range d.Ports {
		ports[i] = strconv.Itoa(int(p))
	}
	if len(ports) == 0 {
		return d.Name + d.CIDR
	}
	return d.Name + d.CIDR + ":" + strings.Join(ports, ",")
}
