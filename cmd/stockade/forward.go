package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/client"
)

func (c *cli) forwardCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "forward SESSION [LOCAL:]PORT",
		Short: "Reach a port on the loopback of a session",
		Long: `forward listens on 127.0.0.1, on the port LOCAL (by default PORT; 0 takes any that is free), or on the
unix socket LOCAL, if that has a slash, which only we can open. What connects is connected, inside the session, to PORT of its
loopback. It ends with the interrupt key, with the session, or when the port is taken away (stockade narrow).

Whether the port may be reached is policy's to say (network.forward of the grant). Nothing of the host's
network changes: the listener is of this program, and every connection to it is relayed by the supervisor.`,
		Example: `  stockade forward "$id" 8000
  stockade forward "$id" 9000:8000
  stockade forward "$id" ./web.sock:8000`,
		Args:              arguments(cobra.ExactArgs(2)),
		ValidArgsFunction: atMost(1, c.sessions),
		RunE: func(cmd *cobra.Command, args []string) error {
			local, port, err := place(args[1])
			if err != nil {
				return err
			}
			return c.forward(cmd.Context(), args[0], local, port)
		},
	}
}

// place reads [LOCAL:]PORT: where to listen, and what is reached.
func place(s string) (local string, port uint16, err error) {
	local, word := "", s
	if at := strings.LastIndex(s, ":"); at >= 0 {
		local, word = s[:at], s[at+1:]
	}
	n, err := strconv.ParseUint(word, 10, 16)
	if err != nil || n == 0 {
		return "", 0, usage("forward %q: %q is no port from 1 to 65535", s, word)
	}
	switch {
	case strings.Contains(local, "/"):
		return local, uint16(n), nil
	case local == "" && word != s:
		return "", 0, usage("forward %q: no LOCAL before the colon", s)
	case local == "":
		local = word
	}
	if _, err := strconv.ParseUint(local, 10, 16); err != nil {
		return "", 0, usage("forward %q: %q is no port, and no path with a slash", s, local)
	}
	return net.JoinHostPort("127.0.0.1", local), uint16(n), nil
}

func (c *cli) forward(ctx context.Context, word, local string, port uint16) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, unix.SIGTERM)
	defer stop()
	id, err := c.sessionID(ctx, word)
	if err != nil {
		return err
	}
	f, err := c.client().Forward(ctx, id, port) // first: what is refused listens to nobody
	if err != nil {
		return err
	}
	defer f.Close()
	l, err := listenAt(local)
	if err != nil {
		return err
	}
	defer l.Close()
	c.say("forwarding %s to port %d of %s", l.Addr(), port, id)
	var carried sync.WaitGroup
	defer carried.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-f.Done():
		case <-ctx.Done():
		}
		l.Close()
	}()
	told := &sayOnce{c: c}
	for {
		conn, err := l.Accept()
		if err != nil {
			break
		}
		carried.Go(func() { told.say(f.Carry(ctx, conn.(client.Local))) })
	}
	if ctx.Err() != nil {
		return nil // the interrupt key is how it ends
	}
	return fmt.Errorf("the forwarding has ended%s", c.whyEnded(ctx, f))
}

// listenAt listens for ourselves: on the loopback, or on a socket that nobody else can open.
func listenAt(local string) (net.Listener, error) {
	if !strings.Contains(local, "/") {
		return net.Listen("tcp4", local)
	}
	was := unix.Umask(0o177)
	defer unix.Umask(was)
	return net.Listen("unix", local)
}

// whyEnded asks the receipt, which is there in a moment.
func (c *cli) whyEnded(ctx context.Context, f *client.Forwarding) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for {
		r, err := c.client().Receipt(ctx, f.IntentID())
		if err == nil && r.Payload.Forward != nil {
			return fmt.Sprintf(": %s", strings.TrimSpace(r.Payload.Forward.Reason+" "+printable(r.ErrorMessage)))
		}
		select {
		case <-ctx.Done():
			return ""
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// sayOnce tells what is wrong with connections, and not for each again.
type sayOnce struct {
	c    *cli
	mu   sync.Mutex
	last string
}

func (s *sayOnce) say(err error) {
	e, ok := errors.AsType[*api.Error](err)
	if !ok {
		return // it stood, and either end has gone
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if text := e.Error(); text != s.last {
		s.last = text
		s.c.say("%s", text)
	}
}
