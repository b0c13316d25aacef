package workbench

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/rego"
)

// measured is the result of bench.
type measured struct {
	Digest string    `json:"digest"`
	Points []latency `json:"entrypoints"`
	Over   []string  `json:"over_budget,omitempty"`
}

// latency is how long the decisions of one entry point take, in nanoseconds.
type latency struct {
	Entrypoint string `json:"entrypoint"`
	Cases      int    `json:"cases"`
	Decisions  int    `json:"decisions"`
	P50NS      int64  `json:"p50_ns"`
	P99NS      int64  `json:"p99_ns"`
	MaxNS      int64  `json:"max_ns"`
	Slowest    string `json:"slowest"` // the case whose median is the highest
	SlowestNS  int64  `json:"slowest_p50_ns"`
}

func (b *bench) bench() *cobra.Command {
	var f from
	var limits []string
	var each time.Duration
	cmd := &cobra.Command{
		Use:   "bench [DIR]",
		Short: "Measure how long each entry point takes, and refuse a policy that is over its budget",
		Long: `bench asks each entry point its cases, again and again, and prints the median, the 99th
percentile and the slowest case. The time is that of the evaluation with all that the
supervisor does about it but the hop to a worker process.

A budget is ENTRY=TIME for the 99th percentile or ENTRY.p50=TIME for the median, where ENTRY
is open, exec, signal, …; one that the policy itself declares, in data.stockade_budget, holds as well.
Over budget is exit code 1.`,
		Example: `  stockade policy bench my-policy
  stockade policy bench --budget open=5ms --budget exec.p50=100us --json my-policy
  stockade policy bench --state /var/lib/stockade my-policy`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b.stderr = cmd.ErrOrStderr()
			engine, fsys, err := loadTree(arg(args))
			if err != nil {
				return err
			}
			defer engine.Close()
			budgets, err := declared(fsys)
			if err != nil {
				return err
			}
			for _, l := range limits {
				name, text, ok := strings.Cut(l, "=")
				limit, err := time.ParseDuration(text)
				if !ok || err != nil {
					return fmt.Errorf("--budget %s: want ENTRY=TIME, such as open=5ms", l)
				}
				budgets[name] = limit
			}
			cases, err := b.cases(cmd.Context(), f, fsys, cmd.InOrStdin())
			if err != nil {
				return err
			}
			m, err := measure(cmd, engine, cases, each, b.progress("entry point"))
			if err != nil {
				return err
			}
			if err := m.judge(budgets); err != nil {
				return err
			}
			if err := b.print(cmd, m, func() { m.text(cmd.OutOrStdout()) }); err != nil {
				return err
			}
			if len(m.Over) > 0 {
				return ErrFinding
			}
			return nil
		},
	}
	f.flags(cmd, b, true)
	cmd.Flags().StringArrayVar(&limits, "budget", nil, "ENTRY=TIME: the 99th percentile may be so long; ENTRY.p50=TIME: the median")
	cmd.Flags().DurationVar(&each, "time", time.Second, "how long to ask each entry point")
	return cmd
}

// declared are the budgets that a policy sets itself.
func declared(fsys fs.FS) (map[string]time.Duration, error) {
	bundle, err := rego.ReadBundle(fsys)
	if err != nil {
		return nil, err
	}
	budgets := map[string]time.Duration{}
	text := bundle.Member("stockade_budget")
	if text == nil {
		return budgets, nil
	}
	var said map[string]string
	if err := json.Unmarshal(text, &said); err != nil {
		return nil, fmt.Errorf("data.stockade_budget: %w", err)
	}
	for name, limit := range said {
		if budgets[name], err = time.ParseDuration(limit); err != nil {
			return nil, fmt.Errorf("data.stockade_budget.%s: %w", name, err)
		}
	}
	return budgets, nil
}

// measure asks each entry point its cases in turn, for so long.
func measure(cmd *cobra.Command, engine *rego.Engine, cases []aCase, each time.Duration, show func(done, all int)) (*measured, error) {
	m := &measured{Digest: engine.Digest()}
	inputs := map[string][]rego.Input{}
	names := map[string][]string{}
	for _, c := range cases {
		in, err := c.Typed()
		if err != nil || in.Request == nil {
			continue
		}
		inputs[c.Entrypoint] = append(inputs[c.Entrypoint], in)
		names[c.Entrypoint] = append(names[c.Entrypoint], c.Name)
	}
	points := slices.Sorted(maps.Keys(inputs))
	for n, ref := range points {
		took := make([][]int64, len(inputs[ref]))
		for i, in := range inputs[ref] {
			engine.Decide(cmd.Context(), ref, in) // the first one fills caches
			took[i] = []int64{}
		}
		for end := time.Now().Add(each); time.Now().Before(end) || len(took[0]) < 3; {
			for i, in := range inputs[ref] {
				if err := cmd.Context().Err(); err != nil {
					return nil, err
				}
				start := time.Now()
				engine.Decide(cmd.Context(), ref, in)
				took[i] = append(took[i], int64(time.Since(start)))
			}
		}
		l := latency{Entrypoint: ref, Cases: len(took)}
		var all []int64
		for i, t := range took {
			slices.Sort(t)
			if median := t[len(t)/2]; median > l.SlowestNS {
				l.Slowest, l.SlowestNS = names[ref][i], median
			}
			all = append(all, t...)
		}
		slices.Sort(all)
		l.Decisions, l.P50NS, l.P99NS, l.MaxNS = len(all), all[len(all)/2], all[len(all)*99/100], all[len(all)-1]
		m.Points = append(m.Points, l)
		if show != nil {
			show(n+1, len(points))
		}
	}
	return m, nil
}

func (m *measured) judge(budgets map[string]time.Duration) error {
	for _, name := range slices.Sorted(maps.Keys(budgets)) {
		entry, what, _ := strings.Cut(name, ".")
		i := slices.IndexFunc(m.Points, func(l latency) bool { return l.Entrypoint == "data.stockade."+entry+".decision" })
		if i < 0 {
			return fmt.Errorf("budget %s: there is no case of an entry point %s", name, entry)
		}
		var took int64
		switch what {
		case "", "p99":
			what, took = "p99", m.Points[i].P99NS
		case "p50":
			took = m.Points[i].P50NS
		case "max":
			took = m.Points[i].MaxNS
		default:
			return fmt.Errorf("budget %s: %q is none of p50, p99, max", name, what)
		}
		if limit := budgets[name]; took > int64(limit) {
			m.Over = append(m.Over, fmt.Sprintf("%s %s takes %v, its budget is %v", entry, what, time.Duration(took), limit))
		}
	}
	return nil
}

func (m *measured) text(out io.Writer) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "entry point\tcases\tdecisions\tp50\tp99\tmax\t slowest case\t")
	for _, l := range m.Points {
		round := func(ns int64) time.Duration { return time.Duration(ns).Round(100 * time.Nanosecond) }
		fmt.Fprintf(table, "%s\t%d\t%d\t%v\t%v\t%v\t %s (%v)\t\n", strings.TrimSuffix(strings.TrimPrefix(l.Entrypoint, "data.stockade."), ".decision"),
			l.Cases, l.Decisions, round(l.P50NS), round(l.P99NS), round(l.MaxNS), l.Slowest, round(l.SlowestNS))
	}
	table.Flush()
	for _, over := range m.Over {
		fmt.Fprintln(out, "over budget:", over)
	}
}
