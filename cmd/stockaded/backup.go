package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/supervisor"
)

func backupCommand() *cobra.Command {
	var state string
	var asJSON, quiet bool
	cmd := &cobra.Command{
		Use:   "backup --state DIR TO",
		Short: "Copy a state directory, whole and checked",
		Long: `backup copies everything below a state directory that has to be kept (journal and keys, snapshots,
blobs, policies; not the output in spool, which receipts name) to a directory that does not exist yet, and reads
every byte of the copy again, as fsck --deep does. The supervisor may be running or not. The copy has the private key of
the journal: keep it as you keep the original. To go back, stop the supervisor, put the copy in the place of its state
directory, and start it.

Exit status: 0 the copy is whole, 2 there is no copy.`,
		Example: `  stockaded backup --state /var/lib/stockade /srv/copies/stockade-$(date +%F)
  stockaded backup --state /var/lib/stockade --json /srv/copies/today`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			told := time.Now()
			r, err := supervisor.Backup(cmd.Context(), state, args[0], func(r supervisor.BackupReport) {
				if now := time.Now(); !quiet && now.Sub(told) > time.Second {
					told = now
					fmt.Fprintf(cmd.ErrOrStderr(), "stockaded: %d files, %d MiB\n", r.Files, r.Bytes>>20)
				}
			})
			if err != nil {
				return err
			}
			return show(cmd.OutOrStdout(), asJSON, r, append([]string{fmt.Sprintf("%s: %d files, %d bytes", r.Directory, r.Files, r.Bytes)}, checked(r.Check)...))
		},
	}
	f := cmd.Flags()
	f.StringVar(&state, "state", defaultState, "the supervisor's state directory")
	f.BoolVar(&asJSON, "json", false, "print the report as one JSON document")
	f.BoolVarP(&quiet, "quiet", "q", false, "tell nothing while it goes on")
	return cmd
}
