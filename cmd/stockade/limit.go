package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// limitFlags are the ceilings that a session, or one execution below it, asks for.
type limitFlags struct {
	memory, cpus string
	pids, files  int64
	cpuTime      time.Duration

	// Of a session only.
	weight, inodes int64
	io, disk       string
}

func (l *limitFlags) register(cmd *cobra.Command, session bool) {
	flags, of := cmd.Flags(), ""
	if !session {
		of = " of this execution, tighter than the session's"
	}
	flags.StringVar(&l.memory, "memory", "", "memory ceiling"+of+", such as 512M; swap is always 0")
	flags.StringVar(&l.cpus, "cpus", "", "CPU ceiling"+of+", such as 1 or 0.5")
	flags.DurationVar(&l.cpuTime, "cpu-time", 0, "processor time"+of+", user and system of everything together, such as 10m")
	flags.Int64Var(&l.pids, "pids", 0, "ceiling on processes and threads"+of)
	flags.Int64Var(&l.files, "files", 0, "ceiling on the open files of one process"+of)
	if !session {
		return
	}
	flags.Int64Var(&l.weight, "cpu-weight", 0, "share of the processors among sessions when they are short: 1 to 10000, by default 100")
	flags.StringVar(&l.io, "io", "", "bytes per second that are read, and written, such as 10M, on the devices of the mounts")
	flags.StringVar(&l.disk, "disk", "", "room of scratch and overlays together, such as 1G; such a session has no rw mount")
	flags.Int64Var(&l.inodes, "inodes", 0, "files in scratch and overlays together")
}

// limits is the flags as the document that is sent.
func (l *limitFlags) limits() (out api.Limits, err error) {
	for _, m := range []struct {
		flag, value string
		read        func(string) (int64, error)
		into        *int64
	}{
		{"memory", l.memory, size, &out.MemoryBytes},
		{"cpus", l.cpus, cpus, &out.CPUMillis},
		{"io", l.io, size, &out.IOBytesPerSecond},
		{"disk", l.disk, size, &out.DiskBytes},
	} {
		if m.value == "" {
			continue
		}
		if *m.into, err = m.read(m.value); err != nil {
			return out, usage("--%s: %v", m.flag, err)
		}
	}
	for _, m := range []struct {
		flag  string
		value int64
		into  *int64
	}{
		{"pids", l.pids, &out.PIDs},
		{"files", l.files, &out.Files},
		{"cpu-time", int64(l.cpuTime), &out.CPUTimeNS},
		{"cpu-weight", l.weight, &out.CPUWeight},
		{"inodes", l.inodes, &out.DiskInodes},
	} {
		if m.value < 0 {
			return out, usage("--%s %d: want a positive number", m.flag, m.value)
		}
		*m.into = m.value
	}
	return out, nil
}
