package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// policyCommand hands over to stockaded, so that the policy engine is linked once and
// what is checked is what will decide.
func (c *cli) policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy COMMAND…",
		Short: "Write, check, test, audit, compare, sign, activate and question policy",
		Long: `policy asks the supervisor for status and activate. For everything else it executes stockaded policy with the
same arguments; stockaded is looked for beside this program and then in PATH.`,
		Example: `  stockade policy init my-policy
  stockade policy check my-policy
  stockade policy test my-policy
  stockade policy audit my-policy
  stockade policy replay --state /var/lib/stockade --fail-on=widen my-policy
  stockade policy sign my-policy --key release.key --revision 8 --output policy.tar.gz
  stockade policy activate --preview
  stockade policy why INTENT_ID`,
		DisableFlagParsing: true,
		RunE:               func(_ *cobra.Command, args []string) error { return handOver("policy", args) },
		ValidArgsFunction:  completeHanded("policy"),
	}
	cmd.AddCommand(c.policyStatusCommand(), c.policyActivateCommand())
	return cmd
}

// replayCommand hands over to stockaded, because what the journal amounts to is known to the code
// that serves it, and that code knows policy.
func (c *cli) replayCommand() *cobra.Command {
	return handedOver("replay", "Rebuild everything from the journal, and compare",
		`goes through the journal below a state directory and says what it amounts to, with
--verify compared with the snapshots and blobs that are there, with --socket with what the
supervisor there says. It carries nothing out.`,
		`  stockade replay --verify --state /var/lib/stockade
  stockade replay --state /var/lib/stockade --socket /run/stockade/stockade.sock`)
}

func (c *cli) fsckCommand() *cobra.Command {
	return handedOver("fsck", "Check a state directory: journal, snapshots, blobs, output",
		`checks the journal below a state directory, replays it, compares with the stored
snapshots, and looks for every blob that is named; with --deep it reads them. It changes nothing.`,
		`  stockade fsck --state /var/lib/stockade --key stockade.pub
  stockade fsck --deep --json --state /var/lib/stockade`)
}

func (c *cli) backupCommand() *cobra.Command {
	return handedOver("backup", "Copy a state directory, whole and checked",
		`copies what has to be kept below a state directory to a directory that does not exist
yet, while a supervisor has it open or not, and reads every byte of the copy again.`,
		`  stockade backup --state /var/lib/stockade /srv/copies/today`)
}

// handedOver is a command of stockaded's on a state directory.
func handedOver(verb, summary, long, example string) *cobra.Command {
	return &cobra.Command{
		Use:   verb + " --state DIR [flags]",
		Short: summary,
		Long: fmt.Sprintf(`%s executes stockaded %[1]s with the same arguments: it %s
Exit status 1: something is not as it should be; 2: it could not be found out.`, verb, long),
		Example:            example,
		DisableFlagParsing: true,
		RunE:               func(_ *cobra.Command, args []string) error { return handOver(verb, args) },
	}
}

// completeHanded asks stockaded what can follow.
func completeHanded(verb string) completion {
	return func(_ *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		program, err := daemon()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		out, err := exec.Command(program, slices.Concat([]string{"__complete", verb}, args, []string{prefix})...).Output()
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		last := len(lines) - 1
		directive, perr := strconv.Atoi(strings.TrimPrefix(lines[last], ":"))
		if err != nil || perr != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return lines[:last], cobra.ShellCompDirective(directive)
	}
}

// handOver becomes stockaded.
func handOver(verb string, args []string) error {
	program, err := daemon()
	if err != nil {
		return err
	}
	err = syscall.Exec(program, append([]string{program, verb}, args...), os.Environ())
	return fmt.Errorf("execute %s: %w", program, err)
}

// daemon finds stockaded: beside us first, because what was built together belongs
// together.
func daemon() (string, error) {
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "stockaded")
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	path, err := exec.LookPath("stockaded")
	if err != nil {
		return "", errors.New("stockaded is neither beside this program nor in PATH")
	}
	return path, nil
}
