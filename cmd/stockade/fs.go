package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/sandbox/file"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// inlineFile is how much of a file's new content travels in the request itself; more goes first into a blob. Policy judges
// requests of a megabyte at most.
const inlineFile = 256 << 10

func (c *cli) fsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fs",
		Short: "Read, search and change files of a session",
		Long: `fs uses the file tools of a session: inside, as the session's identity, on its mounts and within
its grant. A relative PATH begins in the session's working directory. Each leaves a receipt; of a
change it has the digests before and after.

A tool that says no (no such file, a text that is not there, nothing found) exits with 1 and its
code on stderr; what is forbidden exits with 120.`,
	}
	cmd.AddCommand(c.fsRead(), c.fsWrite(), c.fsEdit(), c.fsPatch(), c.fsGrep(), c.fsGlob(), c.fsLs(), c.fsStat(), c.fsMv(), c.fsRm(), c.fsMkdir())
	return cmd
}

// asking asks for one operation, and waits for leave where policy wants somebody's.
type asking func(key string, op api.Op, body any) (*api.Receipt, error)

// fsTool is what the commands of fs have in common: a session, and what is asked in it.
func (c *cli) fsTool(use, short, example string, args cobra.PositionalArgs, run func(ctx context.Context, session string, ask asking, args []string) error) *cobra.Command {
	noWait := false
	cmd := &cobra.Command{
		Use: use, Short: short, Example: example,
		Args:              arguments(args),
		ValidArgsFunction: atMost(1, c.sessions),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := c.sessionID(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			ask := func(key string, op api.Op, body any) (*api.Receipt, error) {
				p, r, err := c.client().WithKey(key).Ask(cmd.Context(), op, body)
				return c.leave(cmd.Context(), noWait, p, r, err)
			}
			return run(cmd.Context(), id, ask, args[1:])
		},
	}
	noWaitFlag(cmd, &noWait)
	return cmd
}

// target names a file: argv is bytes, as names are.
func target(name string) file.Target {
	if utf8.ValidString(name) {
		return file.Target{Path: name}
	}
	return file.Target{PathBytes: []byte(name)}
}

// told answers with what a tool said. show writes what was asked for; it is not called when the tool said no. A search that found
// nothing ends as grep does.
func (c *cli) told(r *api.Receipt, err error, show func(*file.Result) error) error {
	if err != nil {
		return err
	}
	if err := c.answer(r); err != nil {
		return err
	}
	res := r.Payload.File
	if res == nil {
		return errors.New("the receipt has no result")
	}
	out := res.Outcome()
	for _, l := range out.Clamped {
		c.say("clamped: %s: asked %d, got %d (%s)", l.Field, l.Requested, l.Effective, l.Source)
	}
	if out.Status != file.OK {
		status := exitFinding
		if out.Status == file.Forbidden {
			status = exitDenied
		}
		return &exitError{status, errors.New(refusal(r.Op, res))}
	}
	if !c.json && show != nil {
		if err := show(res); err != nil {
			return err
		}
	}
	if g, l := res.Grep, res.Glob; g != nil && g.Matches == nil || l != nil && l.Paths == nil {
		return &exitError{exitFinding, nil}
	}
	return nil
}

// refusal is what a tool says no with, and what would let one mend what was asked.
func refusal(op api.Op, res *file.Result) string {
	out := res.Outcome()
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s: %s: %s", op, out.Status, out.Code, out.Message)
	if e := res.Edit; e != nil {
		for _, at := range e.Candidates {
			fmt.Fprintf(&b, "\n  line %d: %s", at.Line, at.Text)
		}
	}
	if p := res.Patch; p != nil {
		for _, e := range p.Errors {
			fmt.Fprintf(&b, "\n  %s %s: %s", e.Code, e.Path, e.Message)
			if e.Nearest != nil {
				fmt.Fprintf(&b, "\n    nearest is line %d: %s", e.Nearest.Line, e.Nearest.Text)
			}
		}
	}
	return b.String()
}

// outputTo writes an output, wherever it is.
func (c *cli) outputTo(ctx context.Context, out *file.Output, to io.Writer) (err error) {
	switch {
	case out == nil:
	case out.InlineText != nil:
		_, err = io.WriteString(to, out.InlineText.Text)
	case out.InlineBytes != nil:
		_, err = to.Write(out.InlineBytes.Bytes)
	case out.Blob != nil:
		err = c.copyBlob(ctx, out.Blob.BlobRef, to)
	}
	return err
}

// lines writes an output that is a list, and says what it leaves out.
func (c *cli) lines(ctx context.Context, out *file.Output, truncated bool, count *int64) error {
	if err := c.outputTo(ctx, out, shown(c.stdout)); err != nil {
		return err
	}
	if truncated && count != nil {
		c.say("%d in all; --max gives more", *count)
	}
	return nil
}

func (c *cli) fsRead() *cobra.Command {
	var lines string
	var offset, most int64
	cmd := c.fsTool("read [flags] SESSION PATH", "Write a file of a session to stdout", `  stockade fs read "$id" main.go
  stockade fs read --lines 10:20 "$id" main.go`, cobra.ExactArgs(2), func(ctx context.Context, id string, tool asking, args []string) error {
		ask := api.FileRead{SessionID: id, Read: file.Read{Target: target(args[0]), OffsetBytes: offset, Encoding: "bytes"}}
		if most > 0 {
			ask.MaxBytes = &most
		}
		if lines != "" {
			var last int64
			if n, err := fmt.Sscanf(lines, "%d:%d", &ask.StartLine, &last); n != 2 || err != nil || ask.StartLine < 1 || last < ask.StartLine {
				return usage("--lines %s: want FIRST:LAST, from 1", lines)
			}
			ask.MaxLines = last - ask.StartLine + 1
		}
		r, err := tool("", api.OpFileRead, ask)
		return c.told(r, err, func(res *file.Result) error {
			if err := c.outputTo(ctx, res.Read.Content, shown(c.stdout)); err != nil {
				return err
			}
			if res.Read.Truncated && most == 0 && lines == "" {
				c.say("truncated: the file has %d bytes; --offset %d goes on", *res.Read.SizeBytes, res.Read.NextOffset)
			}
			return nil
		})
	})
	cmd.Flags().StringVar(&lines, "lines", "", "FIRST:LAST line, from 1")
	cmd.Flags().Int64Var(&offset, "offset", 0, "begin behind so many bytes")
	cmd.Flags().Int64Var(&most, "max", 0, "so many bytes at most (default: all that the grant allows)")
	return cmd
}

// content is what is read from a FILE, or - for our own stdin, as a request has it.
// Of a secret there is no blob.
func (c *cli) content(ctx context.Context, from string, secret bool) (out file.Content, err error) {
	in := c.stdin
	if from != "-" {
		f, err := os.Open(from)
		if err != nil {
			return out, usage("%v", err)
		}
		defer f.Close()
		in = f
	}
	head, err := io.ReadAll(io.LimitReader(in, inlineFile+1))
	if err != nil {
		return out, usage("%s: %v", from, err)
	}
	switch {
	case secret && (len(head) > inlineFile || !utf8.Valid(head)):
		return out, usage("--secret: want UTF-8, at most %s", amount(inlineFile))
	case secret:
		return file.Content{SecretText: &file.InlineText{Text: string(head)}}, nil
	case len(head) > inlineFile:
		ref, err := c.put(ctx, head, in)
		return file.Content{BlobRef: &file.BlobRef{BlobRef: ref}}, err
	case utf8.Valid(head):
		return file.Content{InlineText: &file.InlineText{Text: string(head)}}, nil
	}
	return file.Content{InlineBytes: &file.InlineBytes{Bytes: head}}, nil
}

func (c *cli) fsWrite() *cobra.Command {
	var ask file.Write
	var fresh, secret bool
	var from, key string
	cmd := c.fsTool("write [flags] SESSION PATH", "Give a file of a session what stdin has", `  echo hello | stockade fs write "$id" greeting
  stockade fs write --from main.go --parents "$id" src/main.go
  stockade fs write --expect "$sha" "$id" config <new`, cobra.ExactArgs(2), func(ctx context.Context, id string, tool asking, args []string) (err error) {
		ask.Target = target(args[0])
		if fresh {
			ask.Mode = "create_new"
		}
		if ask.Content, err = c.content(ctx, from, secret); err != nil {
			return err
		}
		r, err := tool(key, api.OpFileWrite, api.FileWrite{SessionID: id, Write: ask})
		return c.told(r, err, nil)
	})
	cmd.Flags().StringVar(&from, "from", "-", "FILE of ours to be read instead of stdin")
	cmd.Flags().BoolVar(&secret, "secret", false, "the content reaches the file and no record, policy or log")
	cmd.Flags().BoolVar(&ask.CreateParents, "parents", false, "make the directories that are missing")
	cmd.Flags().BoolVar(&fresh, "new", false, "only if there is no such file")
	cmd.Flags().StringVar(&ask.ExpectedSHA256, "expect", "", "only if the file has this SHA-256, or is absent")
	keyFlag(cmd, &key)
	return cmd
}

func keyFlag(cmd *cobra.Command, key *string) {
	cmd.Flags().StringVar(key, "key", "", "idempotency key: the same with the same key takes place once")
}

func (c *cli) fsEdit() *cobra.Command {
	var ask file.Edit
	var key string
	cmd := c.fsTool("edit [flags] SESSION PATH OLD NEW", "Replace text in a file of a session", `  stockade fs edit "$id" main.go 'retries = 3' 'retries = 5'
  stockade fs edit --all "$id" main.go foo bar`, cobra.ExactArgs(4), func(ctx context.Context, id string, tool asking, args []string) error {
		ask.Target, ask.OldString, ask.NewString = target(args[0]), args[1], args[2]
		r, err := tool(key, api.OpFileEdit, api.FileEdit{SessionID: id, Edit: ask})
		return c.told(r, err, func(res *file.Result) error { return c.summary(res.Edit.Summary) })
	})
	cmd.Flags().BoolVar(&ask.ReplaceAll, "all", false, "every place, not the only one")
	cmd.Flags().BoolVar(&ask.ExactOnly, "exact", false, "white space, quotes and dashes count")
	cmd.Flags().BoolVar(&ask.DryRun, "dry-run", false, "change nothing")
	keyFlag(cmd, &key)
	return cmd
}

func (c *cli) summary(text string) error {
	_, err := fmt.Fprintln(c.stdout, printable(text))
	return err
}

func (c *cli) fsPatch() *cobra.Command {
	var ask file.Patch
	var from, key string
	cmd := c.fsTool("patch [flags] SESSION", "Apply a patch to files of a session, all of it or nothing", `  stockade fs patch "$id" <change.patch
  git diff | stockade fs patch --format unified "$id"`, cobra.ExactArgs(1), func(ctx context.Context, id string, tool asking, _ []string) error {
		text, err := c.content(ctx, from, false)
		if err != nil {
			return err
		}
		ask.Patch = file.PatchText{InlineText: text.InlineText, BlobRef: text.BlobRef}
		if text.InlineBytes != nil {
			return usage("the patch is not UTF-8")
		}
		r, err := tool(key, api.OpFilePatch, api.FilePatch{SessionID: id, Patch: ask})
		return c.told(r, err, func(res *file.Result) error {
			var b bytes.Buffer
			for _, p := range res.Patch.ChangedPaths {
				fmt.Fprintln(&b, printable(p))
			}
			if _, err := b.WriteTo(c.stdout); err != nil {
				return err
			}
			return c.summary(res.Patch.Summary)
		})
	})
	cmd.Flags().StringVar(&from, "from", "-", "FILE of ours to be read instead of stdin")
	cmd.Flags().StringVar(&ask.Format, "format", "", "v4a or unified (default: v4a)")
	cmd.Flags().BoolVar(&ask.DryRun, "dry-run", false, "say what would change, and change nothing")
	keyFlag(cmd, &key)
	return cmd
}

func (c *cli) fsGrep() *cobra.Command {
	var ask file.Grep
	var most int64
	cmd := c.fsTool("grep [flags] SESSION PATTERN [PATH]", "Find lines in files of a session", `  stockade fs grep "$id" 'func \w+Error' src
  stockade fs grep -F --glob '*.go' -C 2 "$id" 'a.b('`, cobra.RangeArgs(2, 3), func(ctx context.Context, id string, tool asking, args []string) error {
		ask.Pattern = args[0]
		if len(args) > 1 {
			ask.Target = target(args[1])
		}
		if most > 0 {
			ask.MaxResults = &most
		}
		r, err := tool("", api.OpFileGrep, api.FileGrep{SessionID: id, Grep: ask})
		return c.told(r, err, func(res *file.Result) error {
			return c.lines(ctx, res.Grep.Matches, res.Grep.Truncated, res.Grep.MatchCount)
		})
	})
	f := cmd.Flags()
	f.StringVar(&ask.GlobFilter, "glob", "", "only files whose path matches; ! before it leaves those out")
	f.BoolVarP(&ask.CaseInsensitive, "ignore-case", "i", false, "upper and lower case are the same")
	f.BoolVarP(&ask.FixedStrings, "fixed-strings", "F", false, "the pattern is a text")
	f.BoolVarP(&ask.Multiline, "multiline", "U", false, "the pattern may match across lines")
	f.Int64VarP(&ask.Before, "before", "B", 0, "lines of context before a match")
	f.Int64VarP(&ask.After, "after", "A", 0, "lines of context behind a match")
	f.Int64Var(&ask.MaxPerFile, "max-per-file", 0, "of one file so many lines at most")
	f.BoolVar(&ask.RespectIgnore, "respect-ignore", false, "leave out what .gitignore does")
	f.Int64Var(&most, "max", 0, "so many lines at most (default 100)")
	return cmd
}

func (c *cli) fsGlob() *cobra.Command {
	var ask file.Glob
	var most int64
	cmd := c.fsTool("glob [flags] SESSION PATTERN [PATH]", "Find files of a session by their paths, newest first", `  stockade fs glob "$id" '**/*.go'`,
		cobra.RangeArgs(2, 3), func(ctx context.Context, id string, tool asking, args []string) error {
			ask.Pattern = args[0]
			if len(args) > 1 {
				ask.Target = target(args[1])
			}
			if most > 0 {
				ask.MaxResults = &most
			}
			r, err := tool("", api.OpFileGlob, api.FileGlob{SessionID: id, Glob: ask})
			return c.told(r, err, func(res *file.Result) error {
				return c.lines(ctx, res.Glob.Paths, res.Glob.Truncated, res.Glob.Count)
			})
		})
	cmd.Flags().BoolVarP(&ask.CaseInsensitive, "ignore-case", "i", false, "upper and lower case are the same")
	cmd.Flags().BoolVar(&ask.RespectIgnore, "respect-ignore", false, "leave out what .gitignore does")
	cmd.Flags().Int64Var(&most, "max", 0, "so many paths at most (default 100)")
	return cmd
}

func (c *cli) fsLs() *cobra.Command {
	var most int64
	cmd := c.fsTool("ls [flags] SESSION [PATH]", "List a directory of a session", `  stockade fs ls "$id" src`,
		cobra.RangeArgs(1, 2), func(ctx context.Context, id string, tool asking, args []string) error {
			ask := api.FileList{SessionID: id}
			if len(args) > 0 {
				ask.Target = target(args[0])
			}
			if most > 0 {
				ask.MaxResults = &most
			}
			r, err := tool("", api.OpFileList, ask)
			return c.told(r, err, func(res *file.Result) error {
				return c.lines(ctx, res.List.Entries, res.List.Truncated, res.List.Count)
			})
		})
	cmd.Flags().Int64Var(&most, "max", 0, "so many names at most (default 100)")
	return cmd
}

func (c *cli) fsStat() *cobra.Command {
	var link bool
	cmd := c.fsTool("stat [flags] SESSION PATH", "Say what is at a path of a session", `  stockade fs stat "$id" src/main.go
  stockade fs stat --json "$id" src | jq .payload.file.stat`, cobra.ExactArgs(2), func(ctx context.Context, id string, tool asking, args []string) error {
		r, err := tool("", api.OpFileStat, api.FileStat{SessionID: id, Stat: file.Stat{Target: target(args[0]), Link: link}})
		return c.told(r, err, func(res *file.Result) error {
			s := res.Stat
			text := fmt.Sprintf("%s %04o %d:%d", s.Kind, s.Mode, s.UID, s.GID)
			if s.SizeBytes != nil {
				text += fmt.Sprintf(" %d", *s.SizeBytes)
			}
			text += " " + s.Path
			if s.LinkTo != "" {
				text += " -> " + s.LinkTo
			}
			return c.summary(text)
		})
	})
	cmd.Flags().BoolVar(&link, "link", false, "of a symbolic link, the link itself")
	return cmd
}

func (c *cli) fsMv() *cobra.Command {
	var ask file.Move
	var key string
	cmd := c.fsTool("mv [flags] SESSION FROM TO", "Rename a file, a directory or a link of a session", `  stockade fs mv "$id" old.go new.go`,
		cobra.ExactArgs(3), func(ctx context.Context, id string, tool asking, args []string) error {
			ask.Target = target(args[0])
			if to := target(args[1]); to.Path != "" {
				ask.To = to.Path
			} else {
				ask.ToBytes = to.PathBytes
			}
			r, err := tool(key, api.OpFileMove, api.FileMove{SessionID: id, Move: ask})
			return c.told(r, err, nil)
		})
	cmd.Flags().BoolVar(&ask.Overwrite, "overwrite", false, "replace a file that is there")
	keyFlag(cmd, &key)
	return cmd
}

func (c *cli) fsRm() *cobra.Command {
	var ask file.Remove
	var key string
	cmd := c.fsTool("rm [flags] SESSION PATH", "Remove a file, a link or a directory of a session", `  stockade fs rm -r "$id" build`,
		cobra.ExactArgs(2), func(ctx context.Context, id string, tool asking, args []string) error {
			ask.Target = target(args[0])
			r, err := tool(key, api.OpFileRemove, api.FileRemove{SessionID: id, Remove: ask})
			return c.told(r, err, nil)
		})
	cmd.Flags().BoolVarP(&ask.Recursive, "recursive", "r", false, "with everything in a directory")
	keyFlag(cmd, &key)
	return cmd
}

func (c *cli) fsMkdir() *cobra.Command {
	var ask file.Mkdir
	var key string
	cmd := c.fsTool("mkdir [flags] SESSION PATH", "Make a directory in a session", `  stockade fs mkdir -p "$id" src/deep`,
		cobra.ExactArgs(2), func(ctx context.Context, id string, tool asking, args []string) error {
			ask.Target = target(args[0])
			r, err := tool(key, api.OpFileMkdir, api.FileMkdir{SessionID: id, Mkdir: ask})
			return c.told(r, err, nil)
		})
	cmd.Flags().BoolVarP(&ask.CreateParents, "parents", "p", false, "with those above it; one that is there is no error")
	keyFlag(cmd, &key)
	return cmd
}
