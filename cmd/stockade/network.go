package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// network reads --network and --allow. What is allowed means egress where no mode is said.
func network(mode string, allow []string) (api.GrantNetwork, error) {
	n := api.GrantNetwork{Mode: mode}
	switch {
	case mode == "" && len(allow) > 0:
		n.Mode = "egress"
	case mode == "none" && len(allow) > 0:
		return n, usage("--network none reaches nothing: leave out --allow")
	case mode != "" && !slices.Contains(sandbox.NetworkModes, mode):
		return n, usage("--network %q: want none, egress or full", mode)
	}
	for _, s := range allow {
		d, err := destination(s)
		if err != nil {
			return n, err
		}
		n.Allow = append(n.Allow, d)
	}
	return n, nil
}

// destination reads NAME[:PORT,…][/tcp] or PREFIX[:PORT,…]. An address alone is the prefix that holds nothing else.
func destination(s string) (d api.Destination, err error) {
	rest, tcp := strings.CutSuffix(s, "/tcp")
	if tcp {
		d.Protocol = "tcp"
	}
	what, ports := rest, ""
	if at := strings.LastIndex(rest, ":"); at >= 0 && !isAddress(rest) {
		what, ports = rest[:at], rest[at+1:]
		if d.Ports, err = portList(ports); err != nil {
			return d, usage("--allow %q: %v", s, err)
		}
	}
	what = strings.TrimSuffix(strings.TrimPrefix(what, "["), "]")
	if a, err := netip.ParseAddr(what); err == nil {
		what = netip.PrefixFrom(a, a.BitLen()).String()
	}
	switch {
	case what == "":
		return d, usage("--allow %q: want NAME[:PORT,…] or PREFIX[:PORT,…]", s)
	case !strings.Contains(what, "/"):
		d.Name = strings.ToLower(what)
	case tcp:
		return d, usage("--allow %q: /tcp is for a name; a prefix goes by address anyway", s)
	default:
		p, err := netip.ParsePrefix(what)
		if err != nil {
			return d, usage("--allow %q: not a prefix of addresses", s)
		}
		d.CIDR = p.Masked().String()
	}
	return d, nil
}

// isAddress reports whether all of s is an address or a prefix of addresses: those of version 6 have colons of their own.
func isAddress(s string) bool {
	_, err := netip.ParseAddr(s)
	if err != nil {
		_, err = netip.ParsePrefix(s)
	}
	return err == nil
}

func portList(s string) ([]uint16, error) {
	var ports []uint16
	for word := range strings.SplitSeq(s, ",") {
		n, err := strconv.ParseUint(word, 10, 16)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("%q is no port from 1 to 65535", word)
		}
		ports = append(ports, uint16(n))
	}
	return ports, nil
}

// opened reads --forward.
func opened(words []string) (*api.GrantForward, error) {
	f := &api.GrantForward{}
	for _, word := range words {
		if word == "all" {
			return f, nil
		}
		ports, err := portList(word)
		if err != nil {
			return nil, usage("--forward %q: %v", word, err)
		}
		f.Ports = append(f.Ports, ports...)
	}
	if len(words) == 0 {
		return nil, nil
	}
	return f, nil
}

// reach is a network in words.
func reach(n api.GrantNetwork) string {
	var all []string
	for _, d := range n.Allow {
		text := d.Name + d.CIDR
		for i, p := range d.Ports {
			text += string(":,"[min(i, 1)]) + strconv.Itoa(int(p))
		}
		if d.Protocol != "" {
			text += "/" + d.Protocol
		}
		all = append(all, text)
	}
	text := strings.TrimSpace(n.Mode + " " + strings.Join(all, " "))
	switch f := n.Forward; {
	case f == nil:
	case f.Ports == nil:
		text += ", forwards every port"
	default:
		text += fmt.Sprintf(", forwards %v", f.Ports)
	}
	return text
}

func (c *cli) narrowCommand() *cobra.Command {
	var mode string
	var allow, forward []string
	cmd := &cobra.Command{
		Use:   "narrow [flags] SESSION",
		Short: "Take a part of a session's network away",
		Long: `narrow leaves a session no more of its network than it names. What is connected to
something else is cut off at once; nothing gives it back. What the session does not have
is refused.`,
		Example: `  stockade narrow --network none "$id"
  stockade narrow --allow proxy.golang.org:443 "$id"`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: atMost(1, c.sessions),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := network(mode, allow)
			if err != nil {
				return err
			}
			if n.Mode == "" {
				return usage("narrow: say what is left with --network or --allow")
			}
			if n.Forward, err = opened(forward); err != nil {
				return err
			}
			return c.narrow(cmd.Context(), args[0], n)
		},
	}
	cmd.Flags().StringVar(&mode, "network", "", "what is left: none, egress or full")
	cmd.Flags().StringArrayVar(&allow, "allow", nil, "what is left to reach, as open has it (repeatable)")
	cmd.Flags().StringArrayVar(&forward, "forward", nil, "PORT that is left to `stockade forward`, or all (repeatable)")
	completeFlag(cmd, "network", cobra.FixedCompletions(sandbox.NetworkModes, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (c *cli) narrow(ctx context.Context, word string, n api.GrantNetwork) error {
	id, err := c.sessionID(ctx, word)
	if err != nil {
		return err
	}
	r, err := c.client().Narrow(ctx, api.SessionNarrow{SessionID: id, Network: n})
	if err == nil && r.Outcome == api.OutcomeOK && r.Payload.Control != nil && r.Payload.Control.Count > 0 {
		c.say("%d connection(s) cut off", r.Payload.Control.Count)
	}
	return c.controlled(id, r, err)
}
