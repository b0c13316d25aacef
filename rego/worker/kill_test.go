package worker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// killer is an evaluation that a deadline of OPA's does not stop, or not soon, or that nothing bounds.
type killer struct {
	name, work string
	builtin    string // that our list refuses; "" is one that every policy can write
}

// text is 200 kB of one letter.
var text = `text := concat("", [x | some i in range; x := "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"])
range := [n | some c in split("` + thousand + `", ""); some d in split("ab", ""); n := [c, d]]
`

var thousand = strings.Repeat("z", 1000)

var killers = []killer{
	{"paths of a graph", `graph.reachable_paths({format_int(i, 10): {format_int(j, 10) | some j in numbers.range(0, 13)} | some i in numbers.range(0, 13)}, {"0"})`, "graph.reachable_paths"},
	{"a shift", `bits.lsh(1, 8000000000)`, "bits.lsh"},
	{"a quadratic search", `regex.find_n("(a|aa)*b|a", text, -1)`, "regex.find_n"},
	{"a range", `numbers.range(1, 1000000000)`, "numbers.range"},
	{"a wide pattern", `regex.match("(a?){500}(a?){500}c", concat("", [text, text, text, text, text, text, text, text, text, text]))`, ""},
	{"large numbers", `product(5)`, ""},
	{"text that doubles", `doubled(40)`, ""},
	{"a product of everything", `count([1 | some i in range; some j in range; some k in range; i != j; j != k])`, ""},
	{"a list without end", `[[i, j, k] | some i in range; some j in range; some k in range]`, ""},
	{"a deep walk", `count([p | walk(json.unmarshal(concat("", [replace(substring(text, 0, 9000), "a", "["), replace(substring(text, 0, 9000), "a", "]")])), [p, _])])`, ""},
}

// steps are functions that take from one another, because Rego has no recursion.
func steps() string {
	var b strings.Builder
	fmt.Fprintf(&b, "doubled(40) := d40\nd0 := text\nproduct(5) := p5\np0 := json.unmarshal(replace(text, \"a\", \"9\"))\n")
	for i := range 40 {
		fmt.Fprintf(&b, "d%d := concat(\"\", [d%d, d%d])\n", i+1, i, i)
	}
	for i := range 5 {
		fmt.Fprintf(&b, "p%d := p%d * p%d\n", i+1, i, i)
	}
	return b.String()
}

// deadly is a policy that does what a request names as its profile.
func deadly(list []killer) fstest.MapFS {
	var b strings.Builder
	b.WriteString(`default decision := {"allow": false, "deny": [{"code": "nothing"}]}
decision := {"allow": false, "deny": [{"code": "served"}]} if input.request.open.profile == "served"
` + text + steps())
	for _, k := range list {
		fmt.Fprintf(&b, "decision := {\"allow\": false, \"deny\": [{\"code\": sprintf(\"survived %%v\", [work])}]} if {\n\tinput.request.open.profile == %q\n\twork := %s\n}\n", k.name, k.work)
	}
	return tree(b.String())
}

// Killers are denied within 200 ms at a deadline of 50 ms: it is that, a tick, and the kernel's time for a process.
const (
	shortDeadline = 50 * time.Millisecond
	deniedWithin  = 200 * time.Millisecond
)

// TestKillers (R108, R109): what OPA does not stop is stopped, its worker is replaced, and the next request is served. What our
// list of builtins refuses is tried with all of OPA's.
func TestKillers(t *testing.T) {
	byList := func(k killer) bool { return k.builtin != "" }
	ours := slices.DeleteFunc(slices.Clone(killers), byList)
	for _, pool := range []struct {
		name    string
		program []string
		list    []killer
	}{{"every builtin", as("every"), killers}, {"ours", nil, ours}} {
		t.Run(pool.name, func(t *testing.T) {
			p := load(t, deadly(pool.list), Options{Program: pool.program, Options: rego.Options{MaxOverruns: 1000}})
			for _, k := range pool.list {
				// A machine that is busy can keep us from looking at the clock: one of a few is in time.
				best := time.Hour
				var deny api.Deny
				for range 5 {
					full(t, p)
					p.options.Deadline = shortDeadline
					begin := time.Now()
					deny = do(t, p, k.name)
					best = min(best, time.Since(begin))
					p.options.Deadline = 30 * time.Second
					if next := do(t, p, "served"); next.Code != "served" {
						t.Fatalf("after %s: %v", k.name, next)
					}
					if best <= deniedWithin {
						break
					}
				}
				if best > deniedWithin || deny.Code != api.CodePolicyTimeout && deny.Code != api.CodePolicyWorker {
					t.Errorf("%s: %v after %v", k.name, deny, best)
				}
				t.Logf("%s: %s after %v", k.name, deny.Code, best.Round(time.Millisecond))
			}
			full(t, p)
		})
	}
	for _, k := range killers {
		if k.builtin == "" {
			continue
		}
		if _, err := Load(deadly([]killer{k}), Options{}); err == nil || !strings.Contains(err.Error(), "builtin "+k.builtin+" is not available") {
			t.Errorf("%s: %v", k.name, err)
		}
	}
}

// TestNeighbours: while one caller does nothing but kill workers, what others wait for their decisions is not what a killer takes. What
// they wait beside a process that only takes as much of the machine is the measure.
func TestNeighbours(t *testing.T) {
	p := load(t, deadly(killers[4:]), Options{Options: rego.Options{MaxOverruns: 1 << 30}, CPU: shortDeadline - tick})
	full(t, p)
	p99 := func(beside string) time.Duration {
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer stop()
		if beside == "" {
			all.Go(func() {
				for ctx.Err() == nil { // as much of the machine
				}
			})
		} else {
			in := input(0)
			in.Request.Principal.UID++
			in.Request.Open.Profile = beside
			all.Go(func() {
				for ctx.Err() == nil {
					p.Decide(ctx, rego.Open, in)
				}
			})
		}
		in := input(0)
		in.Request.Open.Profile = "served"
		var took []time.Duration
		for range 2000 {
			d := p.Decide(t.Context(), rego.Open, in)
			if len(d.Deny) != 1 || d.Deny[0].Code != "served" {
				t.Fatal(d.Deny)
			}
			took = append(took, d.Elapsed)
			time.Sleep(500 * time.Microsecond)
		}
		slices.Sort(took)
		return took[len(took)*99/100]
	}
	alone, before := p99(""), p.State().Replaced
	harmed := p99("a product of everything")
	killed := p.State().Replaced - before
	t.Logf("p99 beside a spinning one %v, beside %d killers %v", alone, killed, harmed)
	if killed < 5 {
		t.Errorf("%d killers are no neighbours", killed)
	}
	if harmed > max(shortDeadline, 10*alone) {
		t.Errorf("p99 %v beside killers, %v beside what only spins", harmed, alone)
	}
}
