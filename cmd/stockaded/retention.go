package main

import (
	"github.com/spf13/pflag"

	"github.com/stockade-dev/stockade/supervisor"
)

// retentionFlags say how much of the past is kept. Zeros stand for the supervisor's defaults, which
// the texts repeat.
func retentionFlags(f *pflag.FlagSet, d *supervisor.Defaults) {
	f.IntVar(&d.History.History, "history", 0, "executions that have ended and can still be listed (default 2000)")
	f.DurationVar(&d.HistoryAge, "history-age", 0, "how long what has ended can still be listed (default 168h)")
	f.Int64Var(&d.OutputPerSession, "output-per-session", 0, "bytes of output that are kept of a session's ended executions, beside their receipts (default 64 MiB)")
	f.DurationVar(&d.BlobGrace, "blob-grace", 0, "how long content stays that no record names (default 1h)")
	f.DurationVar(&d.JournalAge, "journal-age", 0, "age from which on records are trimmed; without it none is for its age")
	f.Int64Var(&d.JournalBytes, "journal-bytes", 0, "size of the journal from which on records are trimmed; without it none is for its size")
	f.Int64Var(&d.SegmentBytes, "segment-bytes", 0, "size of a file of the journal, which is trimmed by whole files (default 64 MiB)")
	f.Int64Var(&d.SnapshotEvery, "snapshot-every", 0, "records from one snapshot to the next (default 20000)")
	f.DurationVar(&d.RetainEvery, "retain-every", 0, "time between two rounds in which all of this is seen to (default 10m)")
}
