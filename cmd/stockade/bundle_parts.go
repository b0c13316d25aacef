package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// verbatim is a part that is text, and not JSON.
type verbatim []byte

// partLimit is how long one part may take to be had.
const partLimit = 2 * time.Minute

// Where what belongs to a supervisor stands by itself. A path elsewhere has been named by somebody, after anything.
var standardPlaces = []string{"/etc/stockade", "/var/lib/stockade", "/run/stockade", "/usr"}

// bundledSetting is a setting as it is shown.
type bundledSetting struct {
	Name   string   `json:"name"`
	From   string   `json:"from"`
	Values []string `json:"values,omitempty"`
}

// bundledSettings shows what a setting is by its kind: words as they are, paths where they are the usual ones, and of what could hold
// a credential that it is set.
func (c *cli) bundledSettings(ctx context.Context) (any, error) {
	s, err := c.client().Settings(ctx)
	if err != nil {
		return nil, err
	}
	shown := []bundledSetting{}
	for _, one := range s.Settings {
		b := bundledSetting{Name: one.Name, From: one.From}
		for _, v := range one.Values {
			b.Values = append(b.Values, shownValue(one.Kind, v))
		}
		shown = append(shown, b)
	}
	return map[string]any{"log_level": s.LogLevel, "settings": shown, "environment_names": s.Environment}, nil
}

func shownValue(kind api.SettingKind, value string) string {
	switch kind {
	case api.SettingWord:
		return value
	case api.SettingPath:
		clean := filepath.Clean(value)
		if slices.ContainsFunc(standardPlaces, func(p string) bool { return clean == p || strings.HasPrefix(clean, p+"/") }) {
			return clean
		}
		return "(a path elsewhere)"
	case api.SettingEndpoint:
		if value == "http:…" || value == "https:…" {
			return value
		}
	case api.SettingAddress:
		if strings.HasPrefix(value, "unix:") {
			return "unix:" + shownValue(api.SettingPath, value[len("unix:"):])
		}
		if _, port, err := net.SplitHostPort(value); err == nil {
			return "port " + port
		}
	}
	return "(set)"
}

// metricLine is a line of Prometheus's text form whose labels are from closed lists, as ours are.
var metricLine = regexp.MustCompile(`^(# (HELP|TYPE) (stockade|go|process)_[a-z0-9_]+ .*|(stockade|go|process)_[a-z0-9_]+(\{([a-z_]+="[A-Za-z0-9_.+:/ -]*",?)*\})? [-+0-9.eEInfNa]+)$`)

// bundledMetrics asks where the supervisor says that it serves them.
func (c *cli) bundledMetrics(ctx context.Context) (any, error) {
	s, err := c.client().Settings(ctx)
	if err != nil {
		return nil, err
	}
	where := ""
	for _, one := range s.Settings {
		if one.Name == "metrics" && len(one.Values) == 1 {
			where = one.Values[0]
		}
	}
	if where == "" {
		return nil, absent("the supervisor serves none: stockaded --metrics")
	}
	return scraped(ctx, where)
}

func scraped(ctx context.Context, where string) (verbatim, error) {
	network, address := "tcp", where
	if path, ok := strings.CutPrefix(where, "unix:"); ok {
		network, address = "unix", path
	}
	scrape := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://stockaded/metrics", nil)
	if err != nil {
		return nil, err
	}
	answer, err := scrape.Do(req)
	if err != nil {
		return nil, absent("they cannot be asked for where the supervisor says that they are")
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", answer.StatusCode)
	}
	var kept bytes.Buffer
	lines := bufio.NewScanner(io.LimitReader(answer.Body, 8<<20))
	for lines.Scan() {
		if metricLine.Match(lines.Bytes()) {
			kept.Write(lines.Bytes())
			kept.WriteByte('\n')
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if kept.Len() == 0 {
		return nil, absent("what answers there is no supervisor of ours")
	}
	return verbatim(kept.Bytes()), nil
}

// fsckFindings is of fsck's report what names nothing: how much was looked at, and which findings there are.
type fsckFindings struct {
	Journal struct {
		Records int64 `json:"records"`
		Signed  int64 `json:"signed"`
	} `json:"journal"`
	Replay struct {
		Records   int64  `json:"records"`
		From      int64  `json:"from"`
		Digest    string `json:"digest"`
		InFlight  int64  `json:"in_flight"`
		Snapshots int64  `json:"snapshots"`
		Blobs     int64  `json:"blobs"`
	} `json:"replay"`
	Blobs    storedCount   `json:"blobs"`
	Spool    storedCount   `json:"spool"`
	Findings []fsckFinding `json:"findings"`
	OK       bool          `json:"ok"`
}

type storedCount struct {
	Count   int64 `json:"count"`
	Bytes   int64 `json:"bytes"`
	Checked int64 `json:"checked,omitzero"`
}

type fsckFinding struct {
	Code   string `json:"code"`
	Seq    *int64 `json:"seq,omitzero"`
	Benign bool   `json:"benign,omitzero"`
}

// bundledCheck has stockaded replay the journal and look for the blobs. Subjects and details of what it finds name things.
func (c *cli) bundledCheck(ctx context.Context, o *bundleOptions) (any, error) {
	program, err := daemon()
	if err != nil {
		return nil, err
	}
	args := []string{"fsck", "--json", "--state", o.verify.state}
	if o.verify.key != "" {
		args = append(args, "--key", o.verify.key)
	}
	if o.deep {
		args = append(args, "--deep")
	}
	out, err := exec.CommandContext(ctx, program, args...).Output()
	var found fsckFindings
	if bad := json.Unmarshal(out, &found); bad != nil { // members that we have no name for are passed over
		if err != nil {
			return nil, fmt.Errorf("stockaded fsck: %w", err)
		}
		return nil, absent("stockaded fsck: what it says is no report")
	}
	return found, nil
}

// bundledJournal is the service manager's log of the supervisor and the runner.
func bundledJournal(ctx context.Context, n int) (any, error) {
	program, err := exec.LookPath("journalctl")
	if err != nil {
		return nil, absent("there is no journalctl here: --log names a file")
	}
	out, err := exec.CommandContext(ctx, program, "--no-pager", "--quiet", "--output=cat", fmt.Sprintf("--lines=%d", max(0, n)),
		"--unit=stockaded.service", "--unit=stockade-run.service").Output()
	if err != nil {
		return nil, absent("journalctl does not tell: --log names a file")
	}
	if len(bytes.TrimSpace(out)) == 0 {
		return nil, absent("journalctl has nothing of the units stockaded and stockade-run: --log names a file")
	}
	return shownLines(bytes.NewReader(out), n)
}

// bundledLog is the log that was named, or the service manager's.
func bundledLog(ctx context.Context, o *bundleOptions) (any, error) {
	if o.log == "" {
		return bundledJournal(ctx, o.lines)
	}
	f, err := os.Open(o.log)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > logBehind {
		if _, err := f.Seek(-logBehind, io.SeekEnd); err != nil {
			return nil, err
		}
	}
	return shownLines(f, o.lines)
}
