package telemetry

import (
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// Metrics counts what a supervisor does. Its methods may be called at the same time, and cost about
// a tenth of a microsecond each.
type Metrics struct {
	registry *prometheus.Registry
	state    atomic.Pointer[func() State]

	receipts   *prometheus.CounterVec
	stages     *prometheus.HistogramVec
	commands   *prometheus.HistogramVec
	sessions   *prometheus.HistogramVec
	output     *prometheus.CounterVec
	violations *prometheus.CounterVec
	refusals   *prometheus.CounterVec
	thresholds *prometheus.CounterVec
	alerts     *prometheus.CounterVec
	decisions  *prometheus.HistogramVec
	appends    prometheus.Histogram
	appended   prometheus.Histogram
	failures   prometheus.Counter
	adopted    *prometheus.CounterVec
	relayed    *prometheus.CounterVec
}

// State is what is the case at the moment of a scrape.
type State struct {
	Sessions    map[string]int64 // by state
	IdleLongest time.Duration    // of the sessions in which nothing runs
	Idle        int64            // how many those are
	Executions  map[string]int64 // by state
	LongRunning int64            // of them, those that have run for long
	Processes   int64            // in all sessions, as last looked at
	Memory      int64            // likewise
	Queues      map[string]int64 // what waits, by for what
	InFlight    int64            // operations with effect
	Records     int64            // of the journal
	Bytes       int64            // likewise
	Draining    bool
}

// States, kinds and queues that are there also when nothing is in them: a rule that divides by what is
// absent never speaks.
var (
	sessionStates   = []string{"ready", "quiesced", "closing"}
	executionStates = []string{"queued", "running"}
	queues          = []string{"execution", "approval"}
)

// Buckets for what takes from some microseconds, and for what can take hours.
var (
	short = []float64{10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, .1, .25, 1, 5}
	long  = []float64{1e-3, 5e-3, 10e-3, 50e-3, .1, .5, 1, 5, 10, 30, 60, 300, 1800, 3600, 6 * 3600, 24 * 3600}
	sizes = prometheus.ExponentialBuckets(256, 4, 9) // to 16 MiB
)

// New returns metrics that nothing has been counted in.
func New() *Metrics {
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "stockade", Name: name, Help: help}, labels)
	}
	histograms := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "stockade", Name: name, Help: help, Buckets: buckets}, labels)
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "stockade", Name: name, Help: help, Buckets: buckets})
	}
	m := &Metrics{
		registry:   prometheus.NewRegistry(),
		receipts:   counters("receipts_total", "Operations with effect that have ended, by how.", "op", "outcome", "code"),
		stages:     histograms("stage_seconds", "Time that an operation spent in a stage of the pipeline.", short, "stage"),
		commands:   histograms("command_latency_seconds", "Time from the admission of an execution to its receipt, and that of a command in a shell.", long, "op", "status"),
		sessions:   histograms("session_duration_seconds", "Time from the start of a session to its end.", long, "reason"),
		output:     counters("output_throughput_bytes_total", "Output of executions that was read; its rate is the throughput.", "stream"),
		violations: counters("policy_violations_total", "Operations that policy denied, by the first reason.", "op", "code"),
		refusals:   counters("sandbox_denials_total", "What was refused to executions at run time, the first of each kind of each.", "layer"),
		thresholds: counters("resource_threshold_total", "Times that a session or an execution came near a ceiling, or reached it.", "resource", "level"),
		alerts:     counters("alerts_total", "Times that an alert condition came to hold, each of which is an event of its session.", "condition"),
		decisions:  histograms("policy_evaluation_seconds", "Time that a decision took, with the way to the worker and back.", short, "entrypoint"),
		appends:    histogram("journal_append_seconds", "Time until what was appended was durable.", short),
		appended:   histogram("journal_append_bytes", "Size of what was appended together.", sizes),
		failures:   prometheus.NewCounter(prometheus.CounterOpts{Namespace: "stockade", Name: "journal_failures_total", Help: "Appends that failed, for a disk that is full or one that is broken."}),
		adopted:    counters("adopted_total", "What this supervisor found living at its start, and went on with.", "kind"),
		relayed:    counters("relay_connections_total", "Connections of executions that have ended, as their network's relay counted them.", "verdict"),
	}
	m.registry.MustRegister(m.receipts, m.stages, m.commands, m.sessions, m.output, m.violations, m.refusals, m.thresholds, m.alerts, m.decisions,
		m.appends, m.appended, m.failures, m.adopted, m.relayed, gauges{m},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, stream := range []string{"stdout", "stderr"} {
		m.output.WithLabelValues(stream)
	}
	for _, kind := range []string{"session", "execution"} {
		m.adopted.WithLabelValues(kind)
	}
	for _, verdict := range []string{"allowed", "refused"} {
		m.relayed.WithLabelValues(verdict)
	}
	for _, layer := range layers {
		m.refusals.WithLabelValues(layer)
	}
	for _, condition := range Conditions {
		m.alerts.WithLabelValues(condition)
	}
	return m
}

// The conditions of R259 that are a session's.
const (
	FailureRate   = "failure_rate"   // much of what is done in it fails
	Orphans       = "orphans"        // processes that were killed and are there
	AbnormalUsage = "abnormal_usage" // close to a ceiling
	LongRunning   = "long_running"   // an execution runs for longer than is usual
)

// Conditions are all of them.
var Conditions = []string{FailureRate, Orphans, AbnormalUsage, LongRunning}

// Handler answers a scrape.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{DisableCompression: true, MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
}

// Watch says how the state is found. Before it is called there is none.
func (m *Metrics) Watch(state func() State) { m.state.Store(&state) }

// Settled counts a receipt.
func (m *Metrics) Settled(r *api.Receipt) {
	code := known(r.ErrorCode)
	m.receipts.WithLabelValues(string(r.Op), string(r.Outcome), code).Inc()
	if r.Outcome == api.OutcomeDenied {
		m.violations.WithLabelValues(string(r.Op), code).Inc()
	}
	for _, t := range r.Timings {
		m.stages.WithLabelValues(t.Stage).Observe(seconds(time.Duration(t.NS)))
	}
	x := r.Payload.Exec
	if x == nil {
		return
	}
	m.commands.WithLabelValues(string(r.Op), x.Status).Observe(seconds(time.Duration(r.SettledAtNS - r.AdmittedAtNS)))
	for _, d := range x.Denials {
		m.refusals.WithLabelValues(layer(d.Layer)).Inc()
	}
	if n := x.Network; n != nil {
		m.relayed.WithLabelValues("allowed").Add(float64(n.Connections))
		m.relayed.WithLabelValues("refused").Add(float64(n.Refused))
	}
}

// InShell is the op of a command in a shell, which is no operation.
const InShell = "host.shell.command"

// Command counts a command that has ended in a shell which says where its commands begin and end.
func (m *Metrics) Command(took time.Duration) {
	m.commands.WithLabelValues(InShell, "ok").Observe(seconds(took))
}

// known is a code of ours, or "other": policies deny with codes of their own, and those may be made of what a caller said.
func known(code api.Code) string {
	if code == "" {
		return ""
	}
	if _, ok := codes[code]; ok {
		return string(code)
	}
	return other
}

const other = "other"

var codes = func() map[api.Code]bool {
	all := map[api.Code]bool{}
	for _, c := range api.Codes {
		all[c.Code] = true
	}
	return all
}()

// layers are those that refuse things at run time.
var layers = []string{"seccomp", "network", "dns"}

// layer is a layer that refuses things at run time. What a session's relay says is not ours to trust.
func layer(name string) string {
	if slices.Contains(layers, name) {
		return name
	}
	return other
}

// Ended counts a session that has ended.
func (m *Metrics) Ended(reason string, lived time.Duration) {
	m.sessions.WithLabelValues(reason).Observe(seconds(lived))
}

// Output counts what was read of an execution.
func (m *Metrics) Output(stdout, stderr int64) {
	m.output.WithLabelValues("stdout").Add(float64(stdout))
	m.output.WithLabelValues("stderr").Add(float64(stderr))
}

// Near counts that something came near a ceiling, or reached it.
func (m *Metrics) Near(resource, level string) { m.thresholds.WithLabelValues(resource, level).Inc() }

// Alert counts that one of [Conditions] came to hold.
func (m *Metrics) Alert(condition string) { m.alerts.WithLabelValues(condition).Inc() }

// Decided counts a decision.
func (m *Metrics) Decided(entrypoint string, took time.Duration) {
	m.decisions.WithLabelValues(entrypoint).Observe(seconds(took))
}

// Appended counts an append to the journal.
func (m *Metrics) Appended(size int, took time.Duration, err error) {
	if err != nil {
		m.failures.Inc()
		return
	}
	m.appends.Observe(seconds(took))
	m.appended.Observe(float64(size))
}

// Adopted counts what a start went on with.
func (m *Metrics) Adopted(sessions, executions int) {
	m.adopted.WithLabelValues("session").Add(float64(sessions))
	m.adopted.WithLabelValues("execution").Add(float64(executions))
}

func seconds(d time.Duration) float64 { return max(0, d.Seconds()) }

// gauges is the state as a collector sees it.
type gauges struct{ m *Metrics }

func gauge(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("stockade_"+name, help, labels, nil)
}

var (
	sessionsActive = gauge("sessions_active", "Sessions, by state.", "state")
	sessionIdle    = gauge("session_idle", "Sessions in which nothing runs.")
	idleLongest    = gauge("session_idle_longest_seconds", "How long the session has been idle that has been for longest.")
	executionsLive = gauge("executions_active", "Executions, by state.", "state")
	longRunning    = gauge("long_running", "Executions that have run for longer than is usual.")
	processCount   = gauge("process_count", "Processes and threads in all sessions in which something runs, when they were last looked at.")
	sessionMemory  = gauge("session_memory_bytes", "Memory of these sessions, likewise.")
	queueDepth     = gauge("queue_depth", "What waits: executions for their turn, operations for somebody's leave.", "queue")
	inFlight       = gauge("operations_in_flight", "Operations with effect that have no receipt yet.")
	journalRecords = gauge("journal_records", "Records that the journal has.")
	journalBytes   = gauge("journal_size_bytes", "Size of the journal's files.")
	draining       = gauge("draining", "1 while nothing new is taken.")
)

func (g gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{sessionsActive, sessionIdle, idleLongest, executionsLive, longRunning, processCount, sessionMemory, queueDepth,
		inFlight, journalRecords, journalBytes, draining} {
		ch <- d
	}
}

func (g gauges) Collect(ch chan<- prometheus.Metric) {
	look := g.m.state.Load()
	if look == nil {
		return
	}
	s := (*look)()
	one := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, list := range []struct {
		desc  *prometheus.Desc
		names []string
		by    map[string]int64
	}{{sessionsActive, sessionStates, s.Sessions}, {executionsLive, executionStates, s.Executions}, {queueDepth, queues, s.Queues}} {
		for _, name := range list.names {
			one(list.desc, float64(list.by[name]), name)
		}
	}
	one(sessionIdle, float64(s.Idle))
	one(idleLongest, seconds(s.IdleLongest))
	one(longRunning, float64(s.LongRunning))
	one(processCount, float64(s.Processes))
	one(sessionMemory, float64(s.Memory))
	one(inFlight, float64(s.InFlight))
	one(journalRecords, float64(s.Records))
	one(journalBytes, float64(s.Bytes))
	var drained float64
	if s.Draining {
		drained = 1
	}
	one(draining, drained)
}

// Names are all metrics of ours, in order.
func (m *Metrics) Names() []string {
	var names []string
	families, _ := m.registry.Gather() // what can fail is the process collector's, and no metric of ours
	for _, f := range families {
		names = append(names, f.GetName())
	}
	slices.Sort(names)
	return names
}
