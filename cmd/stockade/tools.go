package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/tools"
)

func (c *cli) toolsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tools",
		Short: "The tools that models know: list those of a profile, and carry a call out",
		Long: `A profile has the tools that the models of one provider were trained on, with their names and
arguments. ls shows them, and with --json what the provider's API and an agent host need. call takes
a call as the model made it, and answers as the provider's API takes it; whatever it leads to is judged
by policy and leaves receipts, which --json shows too.`,
	}
	cmd.AddCommand(c.toolsLs(), c.toolsCall())
	return cmd
}

// listed is a list for a line of help.
func listed(names []string) string { return strings.Join(names, ", ") }

// profileNames complete the name of a profile.
func profileNames(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return tools.Names(), cobra.ShellCompDirectiveNoFileComp
}

func (c *cli) toolsLs() *cobra.Command {
	return &cobra.Command{
		Use: "ls PROFILE", Short: "List the tools of a profile: " + listed(tools.Names()),
		Example: `  stockade tools ls codex
  stockade tools ls anthropic --json | jq '[.tools[].definition]'`,
		Args: arguments(cobra.ExactArgs(1)), ValidArgsFunction: profileNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := c.client().Tools(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if c.json {
				return document(c.stdout, list)
			}
			w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "TOOL\tOPERATIONS\tDESCRIPTION")
			for _, t := range list.Tools {
				var ops []string
				for _, op := range t.Operations {
					ops = append(ops, strings.TrimPrefix(string(op), "host."))
				}
				text, _, _ := strings.Cut(t.Description, ". ")
				fmt.Fprintf(w, "%s\t%s\t%s\n", t.Name, strings.Join(ops, " "), strings.TrimSuffix(text, "."))
			}
			return w.Flush()
		},
	}
}

func (c *cli) toolsCall() *cobra.Command {
	var profile string
	cmd := &cobra.Command{
		Use: "call --profile PROFILE SESSION [CALL]", Short: "Carry out a call that a model made, which is read from stdin unless it is said",
		Example: `  stockade tools call --profile anthropic "$id" '{"type":"tool_use","id":"1","name":"bash","input":{"command":"make test"}}'
  stockade tools call --profile codex "$id" <call.json`,
		Args: arguments(cobra.RangeArgs(1, 2)), ValidArgsFunction: atMost(1, c.sessions),
		RunE: func(cmd *cobra.Command, args []string) error {
			if profile == "" {
				return usage("--profile says whose call it is: %s", listed(tools.Names()))
			}
			id, err := c.sessionID(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			var call []byte
			if len(args) == 2 {
				call = []byte(args[1])
			} else if call, err = io.ReadAll(io.LimitReader(c.stdin, api.MaxBody+1)); err != nil {
				return usage("the call: %v", err)
			}
			if !jsontext.Value(call).IsValid() {
				return usage("the call is not JSON")
			}
			a, err := c.client().CallTool(cmd.Context(), api.ToolCall{Profile: profile, SessionID: id, Call: call})
			if err != nil {
				return err
			}
			if c.json {
				err = document(c.stdout, a)
			} else {
				_, err = fmt.Fprintf(c.stdout, "%s\n", a.Result)
			}
			if err != nil || a.OK {
				return err
			}
			status := exitFinding
			switch a.Status {
			case "denied", "forbidden":
				status = exitDenied
			case "error":
				status = exitUnavailable
			}
			return &exitError{status, errors.New(strings.TrimSuffix(fmt.Sprintf("%s: %s: %s: %s", a.Tool, a.Status, a.ErrorCode, a.Message), ": "))}
		},
	}
	cmd.Flags().StringVar(&profile, "profile", "", "whose call it is: "+listed(tools.Names()))
	completeFlag(cmd, "profile", cobra.FixedCompletions(tools.Names(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}
