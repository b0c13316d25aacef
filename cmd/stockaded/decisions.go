package main

import (
	"bufio"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/internal/instant"
	"github.com/stockade-dev/stockade/rego/bundle"
	"github.com/stockade-dev/stockade/supervisor"
)

// decisionsCommand is a part of "policy" that reads the journal, which only the supervisor's package knows.
func decisionsCommand() *cobra.Command {
	var state, since, policy string
	var o supervisor.ExportOptions
	cmd := &cobra.Command{
		Use:   "decisions --state DIR",
		Short: "Write recorded decisions as JSON lines, in the form of OPA's decision log",
		Long: `decisions writes one JSON document per decision: decision_id, bundles, path, input, result, requested_by,
timestamp and metrics as in OPA's decision log, and below custom.stockade what that has no member for: digests of
policy, data and capabilities, the time that policy was told, rules, clamps, and the digest of the input. The journal is read
as it is; a supervisor may be running or not.

What data.system.log.mask names is left out or replaced, and named in erased and masked, with a salted digest of what
was there. The policy that was active last says what; --policy names another. When it cannot be found
out, input and result are left out.`,
		Example: `  stockade policy decisions --state /var/lib/stockade --since 24h > decisions.ndjson
  stockade policy decisions --state /var/lib/stockade --follow | vector`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.Since, err = instant.Parse(since, time.Now()); err != nil {
				return fmt.Errorf("--since %w", err)
			}
			if policy != "" {
				if o.Policy, err = bundle.Open(policy, bundle.Trust{Owner: uint32(os.Geteuid())}); err != nil {
					return err
				}
			}
			o.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			out := bufio.NewWriter(cmd.OutOrStdout())
			left, err := supervisor.Export(cmd.Context(), state, o, func(event []byte) error {
				out.Write(event)
				out.WriteByte('\n')
				if o.Follow {
					return out.Flush()
				}
				return nil // an error of Write is kept, and Flush returns it
			})
			if err == nil {
				err = out.Flush()
			}
			if err == nil && left > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "%d decisions are not there whole any more\n", left)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&state, "state", defaultState, "the supervisor's state directory")
	f.StringVar(&since, "since", "", "leave out what is older: a duration before now (24h), or an instant (2026-01-02T15:04:05Z)")
	f.BoolVar(&o.Follow, "follow", false, "go on with decisions as they are made")
	f.StringVar(&policy, "policy", "", "the policy that says what is masked")
	return cmd
}
