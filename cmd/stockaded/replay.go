package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/rego/workbench"
	"github.com/stockade-dev/stockade/supervisor"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/client"
)

// What replay and fsck say about their ends.
const exitHelp = `
Exit status: 0 all is well, 1 something is not as it should be, 2 it could not be found out.`

func replayCommand() *cobra.Command {
	var state, socket string
	var opt supervisor.ReplayOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "replay --state DIR",
		Short: "Rebuild everything from the journal, and compare",
		Long: `replay makes the state that the journal below a state directory amounts to, from its
first record or, where that was trimmed, from the oldest snapshot. It prints how many records
there are and the digest of the state. It carries nothing out and changes nothing; a
supervisor may be running or not.

With --verify it also compares the state with every stored snapshot, byte for byte, and looks for
every blob that records name: one that is not there is missing_cas_dependency.
With --socket it asks the supervisor there for the digest of its state, and compares that.
` + exitHelp,
		Example: `  stockaded replay --state /var/lib/stockade --verify
  stockaded replay --state /var/lib/stockade --socket /run/stockade/stockade.sock`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if socket != "" {
				live, err := client.New(socket).Snapshot(cmd.Context())
				if err != nil {
					return fmt.Errorf("ask the supervisor: %w", err)
				}
				opt.Records, opt.Digest = live.Records, live.Digest
			}
			r, err := supervisor.Replay(state, opt)
			if err != nil {
				return err
			}
			if err := show(cmd.OutOrStdout(), asJSON, r, replayed(r)); err != nil {
				return err
			}
			return judge(r.OK())
		},
	}
	f := cmd.Flags()
	f.StringVar(&state, "state", defaultState, "the supervisor's state directory")
	f.BoolVar(&opt.Verify, "verify", false, "compare with the stored snapshots, and look for the blobs that records name")
	f.Int64Var(&opt.Records, "records", 0, "stop after so many records; without it, after the last")
	f.StringVar(&opt.Digest, "digest", "", "what the state's digest must be")
	f.StringVar(&socket, "socket", "", "socket of a supervisor that has the directory open, to compare with what it says")
	f.BoolVar(&asJSON, "json", false, "print the report as one JSON document")
	cmd.MarkFlagsMutuallyExclusive("socket", "records")
	cmd.MarkFlagsMutuallyExclusive("socket", "digest")
	return cmd
}

func fsckCommand() *cobra.Command {
	var state string
	var opt supervisor.FsckOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "fsck --state DIR",
		Short: "Check everything in a state directory",
		Long: `fsck checks the journal (frames, order, chain, signatures), replays it and compares with the
stored snapshots, looks for every blob that records name, and with --deep reads every blob that
is there. It changes nothing; a supervisor may be running or not. What a crash has left, and the
next start or round of retention sees to, is told and is no failure.
` + exitHelp,
		Example: `  stockaded fsck --state /var/lib/stockade --key stockade.pub
  stockaded fsck --state /var/lib/stockade --deep --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := supervisor.Fsck(state, opt)
			if err != nil {
				return err
			}
			if err := show(cmd.OutOrStdout(), asJSON, r, checked(r)); err != nil {
				return err
			}
			return judge(r.OK)
		},
	}
	f := cmd.Flags()
	f.StringVar(&state, "state", defaultState, "the supervisor's state directory")
	f.StringVar(&opt.Key, "key", "", "public key of the journal (default: journal/key.pub in the state directory)")
	f.BoolVar(&opt.Deep, "deep", false, "read every blob, and compare it with its name")
	f.BoolVar(&asJSON, "json", false, "print the report as one JSON document")
	return cmd
}

// judge turns what was found into our exit status.
func judge(ok bool) error {
	if ok {
		return nil
	}
	return workbench.ErrFinding
}

func show(out io.Writer, asJSON bool, report any, lines []string) error {
	if asJSON {
		b, err := api.Encode(report)
		if err != nil {
			return err
		}
		lines = []string{string(b)}
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	return nil
}

// replayed is the report of a replay for people.
func replayed(r *supervisor.ReplayReport) []string {
	return append([]string{summary(r)}, findings(r.Findings)...)
}

func summary(r *supervisor.ReplayReport) string {
	s := fmt.Sprintf("%d records", r.Records)
	if r.From > 0 {
		s += fmt.Sprintf(", of which a snapshot stands for the first %d", r.From)
	}
	return s + fmt.Sprintf(", state %s of %d bytes, %d in flight, %d snapshots compared, %d blobs named", r.Digest, r.SizeBytes, r.InFlight, r.Snapshots, r.Blobs)
}

// checked is the report of fsck for people.
func checked(r *supervisor.FsckReport) []string {
	lines := []string{fmt.Sprintf("journal: %d records from %d on, %d signed, root %s", r.Journal.Records-r.Journal.First, r.Journal.First, r.Journal.Signed, r.Journal.Root)}
	if r.Replay != nil {
		lines = append(lines, "replay: "+summary(r.Replay))
	}
	lines = append(lines,
		fmt.Sprintf("blobs: %d, %d bytes, %d read", r.Blobs.Count, r.Blobs.Bytes, r.Blobs.Checked),
		fmt.Sprintf("output: of %d executions, %d bytes", r.Spool.Count, r.Spool.Bytes))
	return append(lines, findings(r.Findings)...)
}

func findings(found []supervisor.Finding) []string {
	var lines []string
	for _, f := range found {
		line := fmt.Sprintf("%s: %s", f.Code, f.Subject)
		if f.Seq != nil {
			line += fmt.Sprintf(" (record %d)", *f.Seq)
		}
		if f.Detail != "" {
			line += ": " + f.Detail
		}
		if f.Benign {
			line += " [seen to by the next start or round]"
		}
		lines = append(lines, line)
	}
	return lines
}
