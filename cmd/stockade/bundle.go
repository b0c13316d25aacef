package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// bundlePart is one file of a support bundle. What it holds is put together member by member from what is known to be nobody's
// secret; nothing is copied and then cleaned.
type bundlePart struct {
	Name    string `json:"name"`
	Why     string `json:"why"`
	Missing string `json:"missing,omitempty"` // why it is not there
	make    func(context.Context) (any, error)
}

type bundleOptions struct {
	out, log string
	lines    int
	deep     bool
	verify   verifyOptions
}

func (c *cli) supportBundleCommand() *cobra.Command {
	var o bundleOptions
	cmd := &cobra.Command{
		Use:   "support-bundle [flags]",
		Short: "Collect what helps to find a fault, without anybody's secrets",
		Long: `support-bundle writes a .tar.gz with versions, layers, what can be asked for, digests of the policy, what is in
flight, how many receipts there are with which outcome and code, how the supervisor was set up, its metrics,
and the control groups with their ceilings; with --state what the verification of the journal, its
replay and the check of the blobs found; and the last lines of the log. manifest.json says what is in it,
why, and what could not be had.

No receipt, command, environment, path of a session, policy, blob or key is in it. Of a setting it has words and
numbers, of a path whether it is the usual one, and of what could hold a credential that it is set. Of a
line of the log it has the time, the level and the message, which is the program's own text, and the
names of the rest. Look at it before it is sent.`,
		Example: `  stockade support-bundle -o fault.tar.gz
  stockade support-bundle -o fault.tar.gz --state /var/lib/stockade --log /var/log/stockade/stockaded.log`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.supportBundle(cmd.Context(), &o) },
	}
	cmd.Flags().StringVarP(&o.out, "output", "o", "stockade-support.tar.gz", "FILE to write; it must not exist")
	cmd.Flags().StringVar(&o.verify.state, "state", "", "the supervisor's state directory, where it can be read")
	cmd.Flags().StringVar(&o.verify.key, "key", "", "public key of the journal (default: journal/key.pub in the state directory)")
	cmd.Flags().BoolVar(&o.deep, "deep", false, "read every blob, and compare it with its name")
	cmd.Flags().StringVar(&o.log, "log", "", "FILE with the supervisor's log; without it the service manager's (journalctl), where there is one")
	cmd.Flags().IntVar(&o.lines, "lines", 500, "how many of the last lines of it")
	return cmd
}

func (c *cli) bundleParts(o *bundleOptions) []*bundlePart {
	parts := []*bundlePart{
		{Name: "versions.json", Why: "which programs talk to each other", make: func(ctx context.Context) (any, error) {
			v, err := c.client().Version(ctx)
			if err != nil {
				return nil, err
			}
			return map[string]string{"stockade": built(), "stockaded": v.Version}, nil
		}},
		{Name: "host.json", Why: "what this kernel and this place offer, layer by layer", make: func(ctx context.Context) (any, error) {
			info, err := c.client().Host(ctx)
			if err != nil {
				return nil, err
			}
			for i := range info.Host.Layers {
				info.Host.Layers[i].Detail = withoutPath(info.Host.Layers[i].Detail)
			}
			return struct {
				Host    sandbox.Host       `json:"host"`
				Workers *api.PolicyWorkers `json:"policy_workers,omitzero"`
			}{info.Host, info.Workers}, nil
		}},
		{Name: "capabilities.json", Why: "what can be asked for here", make: func(ctx context.Context) (any, error) { return c.client().Capabilities(ctx) }},
		{Name: "policy.json", Why: "which revisions decide, by digest", make: c.bundledPolicy},
		{Name: "in_flight.json", Why: "how much is going on", make: func(ctx context.Context) (any, error) {
			q, err := c.client().Quiescence(ctx)
			if err != nil {
				return nil, err
			}
			return map[string]any{"draining": q.Draining, "quiet": q.Quiet, "intents": len(q.Intents), "sessions": q.Sessions, "executions": q.Executions}, nil
		}},
		{Name: "outcomes.json", Why: "how many receipts there are with which outcome and code", make: c.bundledOutcomes},
	}
	unnamed := func(context.Context) (any, error) { return nil, absent("say --state DIR where it can be read") }
	verify, check := unnamed, unnamed
	if o.verify.state != "" {
		verify = func(context.Context) (any, error) { return c.verified(&o.verify, nil) }
		check = func(ctx context.Context) (any, error) { return c.bundledCheck(ctx, o) }
	}
	return append(parts,
		&bundlePart{Name: "configuration.json", Why: "how the supervisor was set up: words and numbers, and of the rest that it is set", make: c.bundledSettings},
		&bundlePart{Name: "metrics.txt", Why: "what the supervisor counts", make: c.bundledMetrics},
		&bundlePart{Name: "cgroups.json", Why: "which control groups there are, and the ceilings on ours", make: func(context.Context) (any, error) { return readGroups("/proc") }},
		&bundlePart{Name: "journal.json", Why: "what the verification of the journal found", make: verify},
		&bundlePart{Name: "fsck.json", Why: "what the replay of the journal and the check of the blobs found, by code", make: check},
		&bundlePart{Name: "log.json", Why: "what the supervisor said last", make: func(ctx context.Context) (any, error) { return bundledLog(ctx, o) }},
	)
}

// withoutPath is what was found of a layer, or of one that was looked for on a path, which somebody else has named, why it is not there.
func withoutPath(detail string) string {
	if !strings.Contains(detail, "/") {
		return detail
	}
	if why := detail[strings.LastIndex(detail, ": ")+1:]; !strings.Contains(why, "/") {
		return strings.TrimSpace(why)
	}
	return ""
}

func (c *cli) bundledPolicy(ctx context.Context) (any, error) {
	s, err := c.client().PolicyStatus(ctx)
	if err != nil {
		return nil, err
	}
	digests := []string{}
	for _, r := range s.Pinned {
		digests = append(digests, r.Digest)
	}
	out := map[string]any{"active": s.Active.Digest, "revision": s.Active.Number, "contract": s.Active.Contract, "signed_by": s.Active.SignedBy, "pinned": digests}
	if s.Refused != nil {
		out["refused"] = s.Refused.Code
	}
	return out, nil
}

// bundledOutcomes counts. A code that is not ours was chosen by whoever wrote the policy.
func (c *cli) bundledOutcomes(ctx context.Context) (any, error) {
	counts := map[string]int{}
	err := c.eachOfAll(ctx, func(r *api.Receipt) {
		counts[string(r.Op)+" "+string(r.Outcome)]++
		for _, code := range r.Codes() {
			if code.Text() == "" {
				code = "(of the policy)"
			}
			counts["code "+string(code)]++
		}
	})
	return counts, err
}

func (c *cli) eachOfAll(ctx context.Context, fn func(*api.Receipt)) error {
	f := api.Read{Order: api.OldestFirst, Limit: most}
	for {
		page, err := c.client().WithScope(api.Scope{}).Audit(ctx, f)
		if err != nil {
			return err
		}
		for i := range page.Receipts {
			fn(&page.Receipts[i])
		}
		if f.After = page.Next; !page.More {
			return nil
		}
	}
}

var (
	logLine = regexp.MustCompile(`^time=(\S+) level=(DEBUG|INFO|WARN|ERROR) msg=("(?:[^"\\]|\\.)*"|\S+)(.*)$`)
	logName = regexp.MustCompile(` ([a-z_.]+)=(?:"(?:[^"\\]|\\.)*"|\S*)`)
)

// logBehind is how much of a log is looked at, from its end.
const logBehind = 4 << 20

// shownLines is what of the last lines of a log in the text form can be shown.
func shownLines(log io.Reader, n int) (any, error) {
	kept, other := []string{}, 0
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, logBehind)
	for lines.Scan() {
		m := logLine.FindStringSubmatch(lines.Text())
		if m == nil {
			other++
			continue
		}
		line := []string{m[1], m[2], m[3]}
		for _, name := range logName.FindAllStringSubmatch(m[4], -1) {
			line = append(line, name[1])
		}
		if kept = append(kept, strings.Join(line, " ")); len(kept) > max(0, n) {
			kept = kept[1:]
		}
	}
	return map[string]any{"lines": kept, "lines_of_another_form": other}, lines.Err()
}

// absent is why there is no such part, in words of ours.
type absent string

func (a absent) Error() string { return string(a) }

// whyMissing is what a manifest says of an error. Words that are none of ours may quote anything.
func whyMissing(err error) string {
	if why, ok := errors.AsType[absent](err); ok {
		return string(why)
	}
	if e, ok := errors.AsType[*api.Error](err); ok {
		return string(e.Code)
	}
	return "not readable"
}

func (c *cli) supportBundle(ctx context.Context, o *bundleOptions) error {
	files := map[string][]byte{}
	parts := c.bundleParts(o)
	for _, p := range parts {
		within, cancel := context.WithTimeout(ctx, partLimit)
		v, err := p.make(within)
		cancel()
		var content bytes.Buffer
		if text, ok := v.(verbatim); ok {
			content.Write(text)
		} else if err == nil {
			err = document(&content, v)
		}
		if err != nil {
			p.Missing = whyMissing(err)
			c.say("%s: %v", p.Name, err)
			continue
		}
		files[p.Name] = content.Bytes()
	}
	var manifest bytes.Buffer
	if err := document(&manifest, parts); err != nil {
		return err
	}
	f, err := os.OpenFile(o.out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return usage("--output: %v", err)
	}
	zipped := gzip.NewWriter(f)
	archive := tar.NewWriter(zipped)
	add := func(name string, content []byte) {
		if err == nil {
			err = archive.WriteHeader(&tar.Header{Name: "stockade-support/" + name, Mode: 0o600, Size: int64(len(content)), ModTime: c.now()})
		}
		if err == nil {
			_, err = archive.Write(content)
		}
	}
	add("manifest.json", manifest.Bytes())
	for _, p := range parts {
		if p.Missing == "" {
			add(p.Name, files[p.Name])
		}
	}
	for _, end := range []func() error{archive.Close, zipped.Close, f.Close} {
		if failed := end(); err == nil {
			err = failed
		}
	}
	if err != nil {
		_ = os.Remove(o.out) // so that it can be asked for again
		return fmt.Errorf("write %s: %w", o.out, err)
	}
	_, err = fmt.Fprintln(c.stdout, o.out)
	return err
}
