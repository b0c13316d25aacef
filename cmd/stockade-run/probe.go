package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/cgroup"
	"github.com/stockade-dev/stockade/sandbox/host"
)

// probed is what "stockade doctor" reads where no supervisor answers.
type probed struct {
	Host  sandbox.Host `json:"host"`
	Lacks []host.Lack  `json:"lacks"`
}

// probeCommand looks at this place as a runner would that is started here, and starts none.
func probeCommand() *cobra.Command {
	var proc bool
	cmd := &cobra.Command{
		Use:    "probe",
		Short:  "Print what this place offers and lacks, as JSON; start nothing",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if proc {
				return mountProc()
			}
			lacks, err := host.Lacks(freshProc)
			if err != nil {
				return err
			}
			text, err := json.Marshal(probed{host.Probe(cgroup.Options{}), lacks})
			if err == nil {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", text)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&proc, "proc", false, "mount a fresh /proc: of a process in namespaces of its own")
	return cmd
}

// freshProc has a process in a session's namespaces mount a /proc.
func freshProc() error {
	own := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
	cmd := exec.Command("/proc/self/exe", "probe", "--proc")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		UidMappings: own, GidMappings: own,
	}
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %.200s", err, strings.TrimSpace(string(said)))
	}
	return nil
}

func mountProc() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	return nil
}
