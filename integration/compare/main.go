// Command compare measures what a caller of Stockade waits for beside what he would use
// instead: a bare fork and exec, bubblewrap, runc. Everything is measured in one run on one
// machine, taking turns, so that the ratios mean something where absolute figures do
// not. It prints a table and writes JSON. Peers that are not installed are left out, and said so.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/stockade-dev/stockade/internal/testbox"
)

func main() {
	bin := flag.String("bin", "build/bin", "directory of the commands")
	out := flag.String("json", "", "file to write the figures to")
	n := flag.Int("n", 200, "how often each is done")
	only := flag.String("only", "", "one group of figures: calls, files, policy, neighbours or restart")
	flood := flag.String("connect", "", "socket to flood with connections: what a bad neighbour is played by")
	flag.Parse()
	if *flood != "" {
		connect(*flood)
	}
	if err := run(*bin, *out, *only, *n); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// Figure is one line of the table.
type Figure struct {
	Name      string  `json:"name"`
	N         int     `json:"n"`
	MinNS     int64   `json:"min_ns,omitempty"`
	P50NS     int64   `json:"p50_ns,omitempty"`
	P99NS     int64   `json:"p99_ns,omitempty"`
	MBps      float64 `json:"mb_per_s,omitempty"`
	PerSecond float64 `json:"per_s,omitempty"`
	Baseline  string  `json:"baseline,omitempty"` // name of another figure
	Ratio     float64 `json:"ratio,omitempty"`    // of p50 to p50, or of MB/s
	OfP99     bool    `json:"of_p99,omitempty"`   // the ratio is of p99 to the baseline's p50
	P99s      bool    `json:"p99s,omitempty"`     // the ratio is of p99 to p99
	Bytes     int64   `json:"bytes,omitempty"`
	Skipped   string  `json:"skipped,omitempty"`
}

func run(bin, out, only string, n int) error {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "stockade-compare-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	d, err := testbox.Start(bin, dir, testbox.Options{})
	if err != nil {
		return err
	}
	defer d.Stop()
	b := &bench{ctx: context.Background(), client: d.Client(), socket: d.Socket, dir: dir, n: n}
	for _, group := range []struct {
		name string
		take func() error
	}{
		{"calls", b.all},
		{"files", b.files},
		{"policy", func() error { return b.policy(bin) }},
		{"neighbours", func() error { return b.neighbours(d) }},
		{"restart", func() error { return b.restart(bin) }},
	} {
		if only != "" && only != group.name {
			continue
		}
		if err := group.take(); err != nil {
			return fmt.Errorf("%s: %w\n%s", group.name, err, d.Log())
		}
	}
	relate(b.figures)
	if err := print(os.Stdout, b.figures); err != nil {
		return err
	}
	if out == "" {
		return nil
	}
	doc, err := json.MarshalIndent(b.figures, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(out, append(doc, '\n'), 0o644)
}

// summarize is a figure of the times taken.
func summarize(name, baseline string, took []time.Duration) Figure {
	slices.Sort(took)
	at := func(q float64) int64 { return int64(took[int(float64(len(took)-1)*q)]) }
	return Figure{Name: name, N: len(took), MinNS: at(0), P50NS: at(0.5), P99NS: at(0.99), Baseline: baseline}
}

// relate fills in the ratios.
func relate(figures []Figure) {
	by := map[string]Figure{}
	for _, f := range figures {
		by[f.Name] = f
	}
	for i := range figures {
		f := &figures[i]
		base, ok := by[f.Baseline]
		switch {
		case !ok || base.Skipped != "" || f.Skipped != "":
		case f.MBps > 0 && base.MBps > 0:
			f.Ratio = f.MBps / base.MBps
		case f.P99s:
			f.Ratio = float64(f.P99NS) / float64(base.P99NS)
		case f.OfP99:
			f.Ratio = float64(f.P99NS) / float64(base.P50NS)
		case base.P50NS > 0:
			f.Ratio = float64(f.P50NS) / float64(base.P50NS)
		}
	}
}

func print(w io.Writer, figures []Figure) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "FIGURE\tMIN\tP50\tP99\tRATIO\tTO")
	for _, f := range figures {
		switch {
		case f.Skipped != "":
			fmt.Fprintf(tw, "%s\t-\t-\t-\t\tskipped: %s\n", f.Name, f.Skipped)
		case f.Bytes > 0:
			fmt.Fprintf(tw, "%s\t\t%d MiB\n", f.Name, f.Bytes>>20)
		case f.PerSecond > 0:
			fmt.Fprintf(tw, "%s\t\t%.0f/s\n", f.Name, f.PerSecond)
		case f.MBps > 0:
			fmt.Fprintf(tw, "%s\t\t%.0f MB/s\t\t%s\t%s\n", f.Name, f.MBps, ratio(f), f.Baseline)
		default:
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\n", f.Name, ms(f.MinNS), ms(f.P50NS), ms(f.P99NS), ratio(f), f.Baseline)
		}
	}
	return tw.Flush()
}

func ms(ns int64) string { return fmt.Sprintf("%.2f ms", float64(ns)/1e6) }

func ratio(f Figure) string {
	if f.Ratio == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f ×", f.Ratio)
}
