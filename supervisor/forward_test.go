package supervisor

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// granting starts on the policy of the tests, with more in it: each text is put behind the place that it is named for.
func granting(t *testing.T, behind map[string]string) *bench {
	t.Helper()
	files := maps.Clone(testPolicy)
	for place, more := range behind {
		found := 0
		for name, file := range files {
			if text := string(file.Data); strings.Contains(text, place) {
				found += strings.Count(text, place)
				files[name] = &fstest.MapFile{Data: []byte(strings.Replace(text, place, place+more, 1))}
			}
		}
		if found != 1 {
			t.Fatalf("%q is %d places of the policy", place, found)
		}
	}
	policy, err := rego.Load(files, rego.Options{Deadline: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	b := startOn(t, newFake(), t.TempDir()+"/state", func(c *Config) { c.Policy = policy })
	b.closers = append(b.closers, policy.Close)
	return b
}

// forwarding starts with sessions whose ports 8000, 8001 and 8002 may be reached, of which policy denies the last; behind 8000 somebody
// answers in capitals.
func forwarding(t *testing.T) *bench {
	t.Helper()
	b := granting(t, map[string]string{
		`"network": {`: `"forward": {"ports": [8000, 8001, 8002]},`,
		"package stockade.signal\n\nimport rego.v1\n": `
decision := {"allow": false, "deny": [{"code": "kept"}]} if input.request.forward.port == 8002

kept if input.request.forward.port == 8002
`,
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				said, _ := io.ReadAll(conn)
				conn.Write(bytes.ToUpper(said))
			}()
		}
	}()
	b.fake.listening = map[uint16]string{8000: l.Addr().String()}
	return b
}

// opened is a forwarding that is open.
type opened struct {
	intent string
	leave  func()
	over   chan *api.Receipt
}

// forward asks for one, and returns it, or the receipt that says no.
func (b *bench) forward(id string, port uint16, who api.Principal) (*opened, *api.Receipt) {
	b.t.Helper()
	closed, told, over := make(chan struct{}), make(chan string, 1), make(chan *api.Receipt, 1)
	go func() {
		r, err := b.Forward(context.Background(), &api.Request{
			Op: api.OpSessionForward, Principal: who, Facade: "test", Forward: &api.SessionForward{SessionID: id, Port: port},
		}, closed, func(intent string) { told <- intent })
		if err != nil {
			b.t.Error(err)
		}
		over <- r
	}()
	select {
	case intent := <-told:
		return &opened{intent, func() { close(closed) }, over}, nil
	case r := <-over:
		return nil, r
	}
}

// R129: what the grant does not open is denied, policy may deny the rest, and of a session that has ended, or is another's,
// nothing is reached: the runner is asked for no connection, and each has its receipt.
func TestForwardRefused(t *testing.T) {
	b := forwarding(t)
	defer b.stop()
	id, ended := b.session(), b.session()
	b.close(ended)
	stranger := alice
	stranger.UID++
	for _, row := range []struct {
		name, session string
		port          uint16
		who           api.Principal
		outcome       api.Outcome
		code          api.Code
	}{
		{"a port that is not granted", id, 9999, alice, api.OutcomeDenied, api.CodeForwardNotAllowed},
		{"no port", id, 0, alice, api.OutcomeFaulted, api.CodeInvalidParams},
		{"policy", id, 8002, alice, api.OutcomeDenied, "kept"},
		{"a session that has ended", ended, 8000, alice, api.OutcomeFaulted, api.CodeSessionClosed},
		{"another's session", id, 8000, stranger, api.OutcomeFaulted, api.CodeSessionNotFound},
	} {
		lane, r := b.forward(row.session, row.port, row.who)
		if lane != nil {
			t.Errorf("%s: it is open", row.name)
			lane.leave()
			<-lane.over
			continue
		}
		if r.Outcome != row.outcome || r.ErrorCode != row.code || r.Payload.Forward == nil || r.Payload.Forward.Status != "error" || r.Payload.Forward.ErrorCode != row.code {
			t.Errorf("%s: %s %s %+v", row.name, r.Outcome, r.ErrorCode, r.Payload.Forward)
		}
	}
	if r := b.do(api.Request{Op: api.OpSessionForward, Forward: &api.SessionForward{SessionID: id, Port: 8000}}); r.Outcome != api.OutcomeFaulted || r.ErrorCode != api.CodeInvalidParams {
		t.Errorf("without a connection: %+v", r)
	}
	if _, _, err := b.Join(t.Context(), alice, "i-none"); err != errNoLane {
		t.Errorf("joined what never was: %v", err)
	}
	if n := b.fake.called("connect"); n != 0 {
		t.Errorf("%d connections were made inside", n)
	}
}

// What is carried is counted in the receipt, with what nobody answered; it is open to its caller alone, and to no more at a time than
// a lane carries.
func TestForwardCarries(t *testing.T) {
	b := forwarding(t)
	defer b.stop()
	id := b.session()
	lane, r := b.forward(id, 8000, alice)
	deaf, other := b.forward(id, 8001, alice)
	if lane == nil || deaf == nil {
		t.Fatalf("%+v %+v", r, other)
	}
	stranger := alice
	stranger.UID++
	if conn, _, err := b.Join(t.Context(), stranger, lane.intent); err != errNoLane {
		t.Errorf("another joined: %v", err)
		conn.Close()
	}
	if _, _, err := b.Join(t.Context(), alice, deaf.intent); err == nil {
		t.Error("where nobody listens somebody answered")
	}
	conn, _, err := b.Join(t.Context(), alice, lane.intent)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(conn, "hello")
	conn.(interface{ CloseWrite() error }).CloseWrite()
	if said, err := io.ReadAll(conn); err != nil || string(said) != "HELLO" {
		t.Errorf("%q %v", said, err)
	}
	conn.Close()
	conn.Close() // twice counts once
	var all []net.Conn
	for range mostJoined {
		conn, _, err := b.Join(t.Context(), alice, lane.intent)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, conn)
	}
	if conn, _, err := b.Join(t.Context(), alice, lane.intent); err == nil {
		t.Error("one too many is carried")
		conn.Close()
	} else if err.(*api.Error).Code != api.CodeTooManyRequests {
		t.Errorf("one too many: %v", err)
	}
	lane.leave()
	for _, conn := range all {
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("a connection outlives its lane")
		}
		conn.Close()
	}
	deaf.leave()
	r, other = <-lane.over, <-deaf.over
	want := &api.ForwardResult{Status: "closed", Port: 8000, Connections: 1 + mostJoined, Sent: 5, Received: 5}
	if diff := cmp.Diff(want, r.Payload.Forward); diff != "" || r.Outcome != api.OutcomeOK {
		t.Errorf("%s %s", r.Outcome, diff)
	}
	if diff := cmp.Diff(&api.ForwardResult{Status: "closed", Port: 8001, Refused: 1}, other.Payload.Forward); diff != "" {
		t.Error(diff)
	}
	if _, _, err := b.Join(t.Context(), alice, lane.intent); err != errNoLane {
		t.Errorf("joined what has ended: %v", err)
	}
}

// A forwarding ends with its session, or with the network that opened its port, and its receipt says that it was cut.
func TestForwardIsCut(t *testing.T) {
	for name, cut := range map[string]func(*bench, string){
		"closed": func(b *bench, id string) { b.close(id) },
		"narrowed": func(b *bench, id string) {
			r := b.do(api.Request{Op: api.OpSessionNarrow, Narrow: &api.SessionNarrow{
				SessionID: id, Network: api.GrantNetwork{Mode: "none", Forward: &api.GrantForward{Ports: []uint16{8001}}},
			}})
			if r.Outcome != api.OutcomeOK {
				b.t.Errorf("%+v", r)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := forwarding(t)
			defer b.stop()
			id := b.session()
			lane, r := b.forward(id, 8000, alice)
			if lane == nil {
				t.Fatalf("%+v", r)
			}
			conn, _, err := b.Join(t.Context(), alice, lane.intent)
			if err != nil {
				t.Fatal(err)
			}
			gone := make(chan error, 1)
			go func() {
				_, err := conn.Read(make([]byte, 1))
				conn.Close()
				gone <- err
			}()
			cut(b, id)
			if err := <-gone; err == nil {
				t.Error("the connection goes on")
			}
			if r := <-lane.over; r.Outcome != api.OutcomeOK || r.Payload.Forward.Reason != "cut" || r.Payload.Forward.Connections != 1 {
				t.Errorf("%s %+v", r.Outcome, r.Payload.Forward)
			}
		})
	}
}
