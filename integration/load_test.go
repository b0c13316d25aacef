package integration

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/stockade-dev/stockade/internal/testbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// A load is callers of one daemon over any number of its lives. Each knows what its operations must
// come to, checks it, and keeps every receipt byte for byte as it was answered. When a connection is lost it asks
// again with the same idempotency key, as a caller is meant to.
type load struct {
	d    *testbox.Daemon
	http *http.Client // not the package client: it is about the bytes
	work string       // directory of the host that sessions have at /work

	mortal    bool  // sessions may be lost with their runner
	forgetful bool  // the past may be trimmed while a caller still looks at it
	favoured  []int // kinds that come more often

	opening sync.Mutex
	session string    // in which commands run
	opened  time.Time // it was

	keys atomic.Int64
	done []atomic.Int64 // of each kind

	mu      sync.Mutex
	kept    map[string][]byte       // receipts as they were answered, by intent
	fresh   []string                // intents of receipts that nobody has looked for since
	results map[string]*api.Receipt // of commands that count themselves, by key
	wrong   []string                // what was not as it must be
}

// A kind is a way to use a daemon.
type kind struct {
	name  string
	leads []string // to failpoints that others do not lead to: beginnings of names
	do    func(*load, context.Context) error
}

var kinds = []kind{
	{"quick", []string{"runner."}, (*load).quick},
	{"quick again", nil, (*load).quickAgain},
	{"slow", nil, (*load).slow},
	{"large", []string{"blob.", "spool.", "supervisor.retain.output"}, (*load).large},
	{"too large", []string{"spool.noted"}, (*load).tooLarge},
	{"input", []string{"supervisor.input."}, (*load).input},
	{"cancel", nil, (*load).cancel},
	{"pause", []string{"supervisor.exec.frozen"}, (*load).pause},
	{"delete", []string{"supervisor.exec.deleted"}, (*load).delete},
	{"commit", nil, (*load).commit},
	{"bounded", nil, (*load).bounded},
	{"reach", nil, (*load).reach},
	{"short session", []string{"supervisor.session."}, (*load).shortSession},
	{"refused", nil, (*load).refused},
	{"signed", []string{"journal.checkpoint."}, (*load).signed},
	{"leave", []string{"supervisor.approval."}, (*load).leave},
}

// leading are the kinds that lead to a failpoint, if not all do.
func leading(point string) (some []int) {
	for i, k := range kinds {
		if slices.ContainsFunc(k.leads, func(begin string) bool { return strings.HasPrefix(point, begin) }) {
			some = append(some, i)
		}
	}
	return some
}

func newLoad(d *testbox.Daemon, work string) *load {
	return &load{
		d: d, work: work, done: make([]atomic.Int64, len(kinds)), kept: map[string][]byte{}, results: map[string]*api.Receipt{},
		http: &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", d.Socket)
		}}},
	}
}

// run lets callers do one thing after the other until no more is wanted; what is under way then comes to
// its end, unless ctx ends.
func (l *load) run(ctx context.Context, callers int, enough <-chan struct{}) {
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for n := i; !isClosed(enough) && ctx.Err() == nil; n += callers {
				k := rand.IntN(len(kinds))
				if n < len(kinds) {
					k = n // each of them at the least
				} else if len(l.favoured) > 0 && rand.IntN(2) == 0 {
					k = l.favoured[rand.IntN(len(l.favoured))]
				}
				time.Sleep(rand.N(pause))
				err := kinds[k].do(l, ctx)
				switch {
				case err == nil:
					l.done[k].Add(1)
				case errors.Is(err, errMoot), ctx.Err() != nil:
				default:
					l.fault("%s: %v", kinds[k].name, err)
				}
			}
		})
	}
	all.Wait()
	l.http.CloseIdleConnections()
}

// errMoot ends what nothing can be said about: its session is lost, or its past trimmed.
var errMoot = errors.New("moot")

func (l *load) fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

// faults are what was not as it must be.
func (l *load) faults() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wrong
}

// pause is what lies between two operations of a caller, at most.
const pause = 8 * time.Millisecond

// patience is how long one request is repeated.
const patience = 30 * time.Second

// ask makes a request until it is answered.
func (l *load) ask(ctx context.Context, method, path, key string, body any) (status int, answer []byte, err error) {
	var content []byte
	if body != nil {
		if content, err = api.Encode(body); err != nil {
			return 0, nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if l.forgetful && key != "" && time.Since(begin) > remembered/2 {
			return 0, nil, errMoot // the key may be forgotten
		}
		status, answer, err = l.once(ctx, method, path, key, content)
		if ctx.Err() != nil {
			return 0, nil, fmt.Errorf("%s %s: no answer within %v: %d %.200s %v", method, path, patience, status, answer, err)
		}
		if err != nil {
			continue
		}
		switch code := errorCode(answer); code {
		case api.CodeShuttingDown, api.CodeKeyInFlight:
			continue
		case api.CodeTooManyConnections, api.CodeInternalError, api.CodeJournalFailed, api.CodeBlobFailed:
			return 0, nil, fmt.Errorf("%s %s: %s", method, path, answer)
		}
		return status, answer, nil
	}
}

func (l *load) once(ctx context.Context, method, path, key string, content []byte) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://stockade"+path, bytes.NewReader(content))
	if err != nil {
		return 0, nil, err
	}
	if content != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := l.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// errorCode is the code of an answer that is no receipt and no document.
func errorCode(answer []byte) api.Code {
	var e api.ErrorBody
	if !bytes.HasPrefix(answer, []byte(`{"error":`)) || json.Unmarshal(answer, &e) != nil {
		return ""
	}
	return e.Error.Code
}

func (l *load) key() string { return fmt.Sprintf("k%d", l.keys.Add(1)) }

// operate carries out an operation and keeps its receipt.
func (l *load) operate(ctx context.Context, path, key string, body any) (*api.Receipt, error) {
	status, answer, err := l.ask(ctx, http.MethodPost, path, key, body)
	if err != nil {
		return nil, err
	}
	return l.keep(path, status, answer)
}

// keep takes a receipt that was answered. The same intent has the same receipt, whenever it is asked for.
func (l *load) keep(path string, status int, answer []byte) (*api.Receipt, error) {
	if code := errorCode(answer); code != "" || status == http.StatusAccepted {
		return nil, fmt.Errorf("%s: %d %s is no receipt", path, status, answer)
	}
	var r api.Receipt
	if err := json.Unmarshal(answer, &r); err != nil || r.IntentID == "" {
		return nil, fmt.Errorf("%s: %s: %v", path, answer, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch before := l.kept[r.IntentID]; {
	case before == nil:
		l.kept[r.IntentID] = answer
		l.fresh = append(l.fresh, r.IntentID)
	case !bytes.Equal(before, answer):
		l.wrong = append(l.wrong, fmt.Sprintf("%s: a receipt has changed:\n  %s\n  %s", path, before, answer))
	}
	return &r, nil
}

// read reads a document; false when there is no such object.
func (l *load) read(ctx context.Context, path string, into any) (bool, error) {
	status, answer, err := l.ask(ctx, http.MethodGet, path, "", nil)
	if err != nil {
		return false, err
	}
	if code := errorCode(answer); code != "" {
		if status == http.StatusNotFound || status == http.StatusGone {
			return false, nil
		}
		return false, fmt.Errorf("GET %s: %s", path, answer)
	}
	return true, json.Unmarshal(answer, into)
}

// Of a forgetful load: how long its daemon remembers what has ended; how long its sessions live, and how long commands
// begin in one, because records are kept as long as something that lives rests on them.
const (
	remembered = time.Second
	shortLife  = 600 * time.Millisecond
	welcome    = 150 * time.Millisecond
)

// place is the session in which commands run, opened when there is none.
func (l *load) place(ctx context.Context) (string, error) {
	l.opening.Lock()
	defer l.opening.Unlock()
	if l.session != "" && !(l.forgetful && time.Since(l.opened) > welcome) {
		return l.session, nil
	}
	local := &api.Local{Mounts: []api.Mount{{HostPath: l.work, GuestPath: "/work", Mode: "rw"}}}
	ask := api.SessionOpen{Profile: "workspace", Target: api.Target{Local: local}}
	if l.forgetful {
		ask.SessionTTLNS = int64(shortLife)
	} else { // a relay and an overlay are too much for so short a life
		local.NetworkMode = "egress"
		local.Mounts = append(local.Mounts, api.Mount{HostPath: l.over(), GuestPath: "/data/over", Mode: "overlay"})
	}
	for {
		r, err := l.operate(ctx, "/v1/sessions", l.key(), ask)
		if err != nil {
			return "", err
		}
		if r.Outcome == api.OutcomeOK {
			l.session, l.opened = r.SessionID, time.Now()
			return r.SessionID, nil
		}
		if !l.interrupted(r) {
			return "", fmt.Errorf("open: %s %s %s", r.Outcome, r.ErrorCode, r.ErrorMessage)
		}
	}
}

// interrupted reports whether an operation was cut off by the end of a daemon, or of a runner: nobody
// is wrong about it.
func (l *load) interrupted(r *api.Receipt) bool {
	if r.Outcome != api.OutcomeFaulted {
		return false
	}
	switch r.ErrorCode {
	case api.CodeSupervisorRestarted:
		return true
	case api.CodeRunnerUnavailable, api.CodeLost:
		return l.mortal
	}
	return false
}

// lost reports whether the session that an operation was in is over, and forgets it. Only the death
// of a runner loses one, and time.
func (l *load) lost(id string, code api.Code) bool {
	switch code {
	case api.CodeSessionClosed, api.CodeSessionNotFound, api.CodeRunnerUnavailable:
		if !l.mortal && !l.forgetful {
			return false
		}
	case api.CodeSessionExpired:
		if !l.forgetful {
			return false
		}
	default:
		return false
	}
	l.opening.Lock()
	defer l.opening.Unlock()
	if l.session == id {
		l.session = ""
	}
	return true
}

// counted is a script that leaves a line in the host's directory for each time that it runs.
func counted(key, rest string) []string {
	return []string{"sh", "-c", "echo " + key + " >>/work/ran; " + rest}
}

// result keeps how a counted command ended, for the audit.
func (l *load) result(key string, r *api.Receipt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.results[key] = r
}

// exec runs a command and judges its receipt.
func (l *load) exec(ctx context.Context, key string, ask api.Exec, judge func(*api.ExecResult) error) (*api.Receipt, error) {
	id, err := l.place(ctx)
	if err != nil {
		return nil, err
	}
	ask.SessionID = id
	r, err := l.operate(ctx, "/v1/exec", key, ask)
	if err != nil {
		return nil, err
	}
	return r, l.judged(key, id, r, judge)
}

// judged says whether a receipt of a command is one that there may be.
func (l *load) judged(key, session string, r *api.Receipt, judge func(*api.ExecResult) error) error {
	l.result(key, r)
	switch {
	case l.lost(session, r.ErrorCode), r.Payload.Exec != nil && l.lost(session, r.Payload.Exec.ErrorCode):
		return errMoot
	case l.interrupted(r):
		return nil // and did not run: the audit counts
	case r.Outcome != api.OutcomeOK:
		return fmt.Errorf("%s: %s %s %s", key, r.Outcome, r.ErrorCode, r.ErrorMessage)
	}
	if err := judge(r.Payload.Exec); err != nil {
		return fmt.Errorf("%s: %w: %+v", key, err, r.Payload.Exec)
	}
	return nil
}

func quickExec(key string) (api.Exec, func(*api.ExecResult) error) {
	exit := len(key) % 7
	return api.Exec{Argv: counted(key, fmt.Sprintf("echo out %s; echo err %s >&2; exit %d", key, key, exit))}, func(x *api.ExecResult) error {
		if x.ExitCode != exit || text(x.Stdout) != "out "+key+"\n" || text(x.Stderr) != "err "+key+"\n" {
			return fmt.Errorf("not exit %d, out %s, err %s", exit, key, key)
		}
		return nil
	}
}

func (l *load) quick(ctx context.Context) error {
	key := l.key()
	ask, judge := quickExec(key)
	_, err := l.exec(ctx, key, ask, judge)
	return err
}

// quickAgain asks for the same thing twice at a time, and once more.
func (l *load) quickAgain(ctx context.Context) error {
	key := l.key()
	ask, judge := quickExec(key)
	id, err := l.place(ctx)
	if err != nil {
		return err
	}
	ask.SessionID = id
	var got [3]*api.Receipt
	var errs [3]error
	var both sync.WaitGroup
	for i := range 2 {
		both.Go(func() { got[i], errs[i] = l.operate(ctx, "/v1/exec", key, ask) })
	}
	both.Wait()
	got[2], errs[2] = l.operate(ctx, "/v1/exec", key, ask)
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	for _, r := range got {
		if r.IntentID != got[0].IntentID {
			return fmt.Errorf("%s: two intents, %s and %s", key, got[0].IntentID, r.IntentID)
		}
	}
	return l.judged(key, id, got[0], judge)
}

// begin starts a command without waiting for it.
func (l *load) begin(ctx context.Context, key string, ask api.Exec) (exec, session string, err error) {
	if session, err = l.place(ctx); err != nil {
		return "", "", err
	}
	ask.SessionID, ask.Wait = session, new(bool)
	status, answer, err := l.ask(ctx, http.MethodPost, "/v1/exec", key, ask)
	if err != nil {
		return "", "", err
	}
	if status == http.StatusAccepted {
		var p api.Pending
		err := json.Unmarshal(answer, &p)
		return p.ExecID, session, err
	}
	r, err := l.keep("/v1/exec", status, answer) // it has ended
	if err != nil {
		return "", "", err
	}
	if l.lost(session, r.ErrorCode) {
		return "", "", errMoot
	}
	if r.ExecID == "" {
		return "", "", fmt.Errorf("%s: %s %s %s", key, r.Outcome, r.ErrorCode, r.ErrorMessage)
	}
	return r.ExecID, session, nil
}

// follow reads an execution's output from cursor to cursor, and returns its receipt and its stdout.
func (l *load) follow(ctx context.Context, exec string) (*api.Receipt, string, error) {
	var out strings.Builder
	offsets := map[string]int64{}
	for after := ""; ; {
		var p api.Pending
		ok, err := l.read(ctx, "/v1/executions/"+exec+"/output?wait_ms=2000&after="+url.QueryEscape(after), &p)
		switch {
		case err != nil:
			return nil, "", err
		case !ok || p.Gone != nil:
			if l.forgetful {
				return nil, "", errMoot
			}
			return nil, "", fmt.Errorf("%s: its output after %q is gone", exec, after)
		}
		for _, c := range p.Output {
			if c.Offset != offsets[c.Stream] {
				return nil, "", fmt.Errorf("%s: %s goes on at %d, not at %d", exec, c.Stream, c.Offset, offsets[c.Stream])
			}
			offsets[c.Stream] += int64(len(c.Bytes))
			if c.Stream == "stdout" {
				out.Write(c.Bytes)
			}
		}
		if after = p.Cursor; p.End && p.Receipt != nil {
			answer, err := api.Encode(p.Receipt)
			if err != nil {
				return nil, "", err
			}
			r, err := l.keep("output", http.StatusOK, answer)
			return r, out.String(), err
		}
	}
}

// slow writes for longer than a daemon lives, and is followed.
func (l *load) slow(ctx context.Context) error {
	key := l.key()
	exec, session, err := l.begin(ctx, key, api.Exec{Argv: counted(key, "i=0; while [ $i -lt 20 ]; do i=$((i+1)); echo "+key+" $i; sleep 0.015; done; exit 6")})
	if err != nil {
		return err
	}
	r, out, err := l.follow(ctx, exec)
	if err != nil {
		return err
	}
	var want strings.Builder
	for i := range 20 {
		fmt.Fprintf(&want, "%s %d\n", key, i+1)
	}
	return l.judged(key, session, r, func(x *api.ExecResult) error {
		if x.ExitCode != 6 || text(x.Stdout) != want.String() || out != want.String() {
			return fmt.Errorf("not exit 6 and 20 lines; followed %q", out)
		}
		return nil
	})
}

// needsLeave is how a command begins that the campaign's policy wants somebody's leave for.
var needsLeave = []string{"env", "LEAVE=needed"}

// leave asks for a command that waits until somebody gives leave, and gives or denies it. What is denied does not run, and
// what a daemon cut off after leave was given, does not either.
func (l *load) leave(ctx context.Context) error {
	key := l.key()
	ask, judge := quickExec(key)
	id, err := l.place(ctx)
	if err != nil {
		return err
	}
	ask.SessionID, ask.Argv, ask.Wait = id, append(slices.Clone(needsLeave), ask.Argv...), new(bool)
	status, answer, err := l.ask(ctx, http.MethodPost, "/v1/exec", key, ask)
	if err != nil {
		return err
	}
	var p api.Pending
	deny := rand.IntN(3) == 0
	switch {
	case status != http.StatusAccepted:
		r, err := l.keep("/v1/exec", status, answer)
		if err != nil {
			return err
		}
		if r.ErrorCode == api.CodeApprovalLimit {
			return errMoot // a load asks more often than anybody could answer
		}
		return l.judged(key, id, r, judge)
	case json.Unmarshal(answer, &p) != nil:
		return fmt.Errorf("%s: %s", key, answer)
	case p.Approval != "":
		if err := l.decide(ctx, p.Approval, deny); err != nil {
			return err
		}
	}
	r, err := l.settled(ctx, p.IntentID)
	if err != nil {
		return err
	}
	if !deny || p.Approval == "" || l.interrupted(r) || r.Payload.Exec != nil && l.lost(id, r.Payload.Exec.ErrorCode) {
		return l.judged(key, id, r, judge)
	}
	l.result(key, nil) // it did not run: the audit counts. Who asks and denies takes it back
	if r.ErrorCode != api.CodeCanceled || r.Approval == nil || r.Approval.State != api.ApprovalCanceled || r.Approval.DecidedBy == nil {
		return fmt.Errorf("%s: it was taken back, and ended %s %s %+v", key, r.Outcome, r.ErrorCode, r.Approval)
	}
	return nil
}

// decide gives or denies leave, as often as it takes until that is certain.
func (l *load) decide(ctx context.Context, approval string, deny bool) error {
	var a api.Approval
	if ok, err := l.read(ctx, "/v1/approvals/"+approval, &a); err != nil || !ok {
		return cmp.Or(err, errMoot)
	}
	verb := "/approve"
	if deny {
		verb = "/deny"
	}
	for {
		r, err := l.operate(ctx, "/v1/approvals/"+approval+verb, l.key(), api.Verdict{ApprovalID: approval, Review: a.Review})
		switch {
		case err != nil:
			return err
		case r.Outcome == api.OutcomeOK:
			return nil
		case r.ErrorCode == api.CodeApprovalSettled, r.ErrorCode == api.CodeApprovalNotFound, r.ErrorCode == api.CodeApprovalStale && l.mortal:
			return nil // its receipt says how
		case !l.interrupted(r):
			return fmt.Errorf("%s of %s: %s %s %s", verb, approval, r.Outcome, r.ErrorCode, r.ErrorMessage)
		}
	}
}

// settled waits for the receipt of an intent.
func (l *load) settled(ctx context.Context, intent string) (*api.Receipt, error) {
	after := ""
	for {
		var page api.FrameList
		ok, err := l.read(ctx, "/v1/intents/"+url.PathEscape(intent)+"/frames?wait_ms=2000&after="+after, &page)
		if err != nil {
			return nil, err
		}
		if !ok || page.Gone != nil {
			return nil, errMoot
		}
		if n := len(page.Frames); n > 0 {
			after = strconv.FormatInt(page.Frames[n-1].Seq, 10)
		}
		if page.Receipt != nil {
			answer, err := api.Encode(page.Receipt)
			if err != nil {
				return nil, err
			}
			return l.keep("frames", http.StatusOK, answer)
		}
	}
}

// large writes more than a receipt holds.
func (l *load) large(ctx context.Context) error {
	const size = 200_000
	key := l.key()
	r, err := l.exec(ctx, key, api.Exec{Argv: counted(key, fmt.Sprintf("yes %s | head -c %d", key, size))}, func(x *api.ExecResult) error {
		if x.ExitCode != 0 || x.Stdout == nil || x.Stdout.Blob == nil || x.Stdout.Blob.SizeBytes != size {
			return errors.New("not a blob")
		}
		return nil
	})
	if err != nil || r.Outcome != api.OutcomeOK {
		return err
	}
	ref := r.Payload.Exec.Stdout.Blob.BlobRef
	status, content, err := l.ask(ctx, http.MethodGet, "/v1/blobs/"+ref, "", nil)
	if err != nil {
		return err
	}
	if l.forgetful && status == http.StatusNotFound {
		return errMoot
	}
	want := strings.Repeat(key+"\n", size/len(key))[:size]
	if string(content) != want || fmt.Sprintf("sha256:%x", sha256.Sum256(content)) != ref {
		return fmt.Errorf("%s: blob %s is %d %d bytes that are not the output", key, ref, status, len(content))
	}
	return nil
}

// tooLarge writes more than is kept.
func (l *load) tooLarge(ctx context.Context) error {
	const size, most = 200_000, 1000
	key := l.key()
	_, err := l.exec(ctx, key, api.Exec{Argv: counted(key, fmt.Sprintf("yes %s | head -c %d", key, size)), Limits: api.Limits{OutputBytes: most}}, func(x *api.ExecResult) error {
		// How much was dropped, a daemon that was killed meanwhile may have counted twice, or not.
		if x.ExitCode != 0 || x.Stdout == nil || !x.Stdout.Truncated || x.Stdout.TotalBytes <= most || text(x.Stdout) != strings.Repeat(key+"\n", size/len(key))[:most] {
			return errors.New("not cut where it is too large")
		}
		return nil
	})
	return err
}

// input writes to a command that copies it. An input that a kill cut off may be there or not, and when it
// is sent again, there twice: that is the contract, and nothing else is.
func (l *load) input(ctx context.Context) error {
	key := l.key()
	exec, session, err := l.begin(ctx, key, api.Exec{Argv: counted(key, "cat"), StdinOpen: true})
	if err != nil {
		return err
	}
	var least, most strings.Builder // what the command has to write, and may
	for i := range 4 {
		line, end := fmt.Sprintf("%s input %d\n", key, i), i == 3
		ask := api.ProcessInput{InputID: fmt.Sprint(i), Data: &api.Stdin{InlineText: &api.InlineText{Text: line}}, Close: end}
		for cut := false; ; cut = true {
			r, err := l.operate(ctx, "/v1/executions/"+exec+"/input", l.key(), ask)
			if err != nil {
				return err
			}
			if !cut {
				least.WriteString(line)
			}
			most.WriteString(line)
			if r.Outcome == api.OutcomeOK {
				break
			}
			ended := r.ErrorCode == api.CodeExecEnded || r.ErrorCode == api.CodeStdinClosed || r.ErrorCode == api.CodeExecNotFound
			if ended && (cut && end || l.mortal) {
				break // the end was there
			}
			if ended {
				if x, _, err := l.follow(ctx, exec); err == nil && l.interrupted(x) {
					l.result(key, x)
					return nil // it never began
				}
			}
			if l.lost(session, r.ErrorCode) || l.mortal && r.ErrorCode == api.CodeStdinFull || l.forgetful && ended {
				return errMoot
			}
			if !l.interrupted(r) {
				return fmt.Errorf("%s: input: %s %s %s", key, r.Outcome, r.ErrorCode, r.ErrorMessage)
			}
		}
	}
	r, out, err := l.follow(ctx, exec)
	if err != nil {
		return err
	}
	return l.judged(key, session, r, func(x *api.ExecResult) error {
		if !between(out, least.String(), most.String()) || x.ExitCode != 0 {
			return fmt.Errorf("wrote %q, not between %q and %q", out, least.String(), most.String())
		}
		return nil
	})
}

// between reports whether the lines of s are those of least, in order, each repeated at most as often as in most.
func between(s, least, most string) bool {
	count := func(line string) (n int) {
		for other := range strings.Lines(most) {
			if other == line {
				n++
			}
		}
		return n
	}
	for want := range strings.Lines(least) {
		n := 0
		for ; strings.HasPrefix(s, want); n++ {
			s = s[len(want):]
		}
		if n < 1 || n > count(want) {
			return false
		}
	}
	return s == ""
}

// end cancels an execution until it is certain that it has ended. cut says that an attempt was cut off, which may have
// killed it all the same.
func (l *load) end(ctx context.Context, exec string) (r *api.Receipt, cut bool, err error) {
	for ; ; cut = true {
		r, err := l.operate(ctx, "/v1/executions/"+exec+"/cancel", l.key(), api.ProcessCancel{GraceNS: new(int64)})
		if err != nil {
			return nil, cut, err
		}
		switch {
		case r.Outcome == api.OutcomeOK:
			return r, cut, nil
		case l.forgetful && (r.ErrorCode == api.CodeExecNotFound || r.ErrorCode == api.CodeGone):
			return nil, cut, errMoot
		case !l.interrupted(r):
			return nil, cut, fmt.Errorf("cancel: %s %s %s", r.Outcome, r.ErrorCode, r.ErrorMessage)
		}
	}
}

// cancel ends a command that would never end.
func (l *load) cancel(ctx context.Context) error {
	key := l.key()
	exec, session, err := l.begin(ctx, key, api.Exec{Argv: counted(key, "sleep 1000")})
	if err != nil {
		return err
	}
	return l.canceled(ctx, key, exec, session)
}

func (l *load) canceled(ctx context.Context, key, exec, session string) error {
	c, cut, err := l.end(ctx, exec)
	if err != nil {
		return err
	}
	r, _, err := l.follow(ctx, exec)
	if err != nil {
		return err
	}
	err = l.judged(key, session, r, func(x *api.ExecResult) error {
		if cut && x.Status == "signaled" && x.Signal == "KILL" {
			return nil // by whom, the daemon knew that was killed
		}
		if x.ErrorCode != api.CodeCanceled || x.ExitCode != -1 || c.Payload.Control.State != api.StateCanceled {
			return fmt.Errorf("not canceled, but %s", c.Payload.Control.Status)
		}
		return nil
	})
	if r.Payload.Exec.ErrorMessage == "canceled before it was started" {
		l.result(key, nil)
	}
	return err
}

// pause freezes a command, lets it go on, and ends it.
func (l *load) pause(ctx context.Context) error {
	key := l.key()
	exec, session, err := l.begin(ctx, key, api.Exec{Argv: counted(key, "sleep 1000")})
	if err != nil {
		return err
	}
	for _, verb := range []string{"pause", "resume"} {
		for {
			r, err := l.operate(ctx, "/v1/executions/"+exec+"/"+verb, l.key(), api.ProcessTarget{})
			if err != nil {
				return err
			}
			if r.Outcome == api.OutcomeOK || r.ErrorCode == api.CodeExecEnded {
				break
			}
			if l.forgetful && r.ErrorCode == api.CodeExecNotFound {
				return errMoot
			}
			if r.ErrorCode != api.CodeExecNotStarted && !l.interrupted(r) {
				return fmt.Errorf("%s: %s: %s %s %s", key, verb, r.Outcome, r.ErrorCode, r.ErrorMessage)
			}
			time.Sleep(time.Millisecond)
		}
	}
	return l.canceled(ctx, key, exec, session)
}

// delete takes a command that has ended out of the registry, where it never is again.
func (l *load) delete(ctx context.Context) error {
	key := l.key()
	ask, judge := quickExec(key)
	r, err := l.exec(ctx, key, ask, judge)
	if err != nil || r.ExecID == "" {
		return err
	}
	for {
		status, answer, err := l.ask(ctx, http.MethodDelete, "/v1/executions/"+r.ExecID, l.key(), nil)
		if err != nil {
			return err
		}
		d, err := l.keep("delete", status, answer)
		if err != nil {
			return err
		}
		if d.Outcome == api.OutcomeOK || d.ErrorCode == api.CodeExecNotFound { // a deletion that was cut off
			break
		}
		if !l.interrupted(d) {
			return fmt.Errorf("%s: delete: %s %s %s", key, d.Outcome, d.ErrorCode, d.ErrorMessage)
		}
	}
	if ok, err := l.read(ctx, "/v1/executions/"+r.ExecID, new(api.Process)); ok || err != nil {
		return fmt.Errorf("%s: it was deleted, and is there: %v", r.ExecID, err)
	}
	return nil
}

// over is the directory of the host that sessions write over.
func (l *load) over() string { return filepath.Join(l.work, "over") }

// pages are what a file that is committed may hold: each of a key, and a size that one write does not hold.
func pages(key string) (all [2]string) {
	for i, version := range []string{"first", "second"} {
		line := key + " " + version + "\n"
		all[i] = strings.Repeat(line, 50_000/len(line))
	}
	return all
}

// commit writes a file over a directory of the host, and again, and commits it each time, until that has taken place. Whoever looks
// sees the one or the other or none, never a part.
func (l *load) commit(ctx context.Context) error {
	if l.forgetful {
		return errMoot
	}
	name := l.key()
	all := pages(name)
	for i, page := range all {
		session, err := l.write(ctx, name, page)
		if err != nil {
			return err
		}
		for done := false; !done; {
			r, err := l.operate(ctx, "/v1/sessions/"+session+"/commit", l.key(), api.Workspace{Paths: []string{name}})
			if err != nil {
				return err
			}
			got, err := os.ReadFile(filepath.Join(l.over(), name))
			if err != nil && !errors.Is(err, os.ErrNotExist) || err == nil && !slices.Contains(all[:], string(got)) {
				return fmt.Errorf("%s: of %d bytes, %v, after %s %s", name, len(got), err, r.Outcome, r.ErrorCode)
			}
			switch done = r.Outcome == api.OutcomeOK; {
			case done && string(got) != page:
				return fmt.Errorf("%s: version %d was committed and is not there", name, i)
			case !done && l.lost(session, r.ErrorCode):
				return errMoot
			case !done && !l.interrupted(r):
				return fmt.Errorf("%s: commit: %s %s %s", name, r.Outcome, r.ErrorCode, r.ErrorMessage)
			}
		}
	}
	return nil
}

// halves are files of the host's that hold neither of what was written. What a commit leaves that was killed has a name that
// says so.
func (l *load) halves() (found []string) {
	entries, err := os.ReadDir(l.over())
	if err != nil {
		return []string{err.Error()}
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".stockade-") && l.mortal {
			continue
		}
		got, err := os.ReadFile(filepath.Join(l.over(), e.Name()))
		if all := pages(e.Name()); err != nil || !slices.Contains(all[:], string(got)) {
			found = append(found, fmt.Sprintf("%s: %d bytes, %v", e.Name(), len(got), err))
		}
	}
	return found
}

// write has a command write a file over the host's directory, and says in which session that was.
func (l *load) write(ctx context.Context, name, page string) (session string, err error) {
	line, _, _ := strings.Cut(page, "\n")
	for {
		key := l.key()
		script := fmt.Sprintf("yes '%s' | head -c %d >/data/over/%s", line, len(page), name)
		r, err := l.exec(ctx, key, api.Exec{Argv: counted(key, script)}, func(x *api.ExecResult) error {
			if x.ExitCode != 0 {
				return errors.New("not written")
			}
			return nil
		})
		switch {
		case err != nil:
			return "", err
		case r.Outcome == api.OutcomeOK:
			return r.SessionID, nil
		}
	}
}

// bounded runs a command that wants more processes than it may have, and is told so.
func (l *load) bounded(ctx context.Context) error {
	key := l.key()
	ask := api.Exec{Argv: counted(key, "for i in 1 2 3 4 5; do sleep 0.02 & done; wait"), Limits: api.Limits{PIDs: 4}}
	_, err := l.exec(ctx, key, ask, func(x *api.ExecResult) error {
		if x.ExitCode == 0 || !slices.ContainsFunc(x.LimitsHit, func(h api.LimitHit) bool { return h.Ceiling == "pids" && h.Scope == "execution" }) {
			return errors.New("not held at 4 processes")
		}
		return nil
	})
	return err
}

// reach tries to reach what nobody grants, and is told so.
func (l *load) reach(ctx context.Context) error {
	if l.forgetful {
		return errMoot
	}
	key := l.key()
	ask := api.Exec{Argv: counted(key, "exec bash -c 'exec 3<>/dev/tcp/192.0.2.1/80; read -r line <&3'")}
	_, err := l.exec(ctx, key, ask, func(x *api.ExecResult) error {
		if x.ExitCode == 0 || len(x.Denials) != 1 || x.Denials[0].Object != "192.0.2.1:80" || x.Network == nil || x.Network.Refused != 1 {
			return errors.New("not refused")
		}
		return nil
	})
	return err
}

// shortSession opens a session, freezes it, thaws it and closes it.
func (l *load) shortSession(ctx context.Context) error {
	ask := api.SessionOpen{Profile: "workspace", Target: api.Target{Local: &api.Local{}}}
	if l.forgetful {
		ask.SessionTTLNS = int64(shortLife) // whoever gives up on the answer leaves it to its end
	}
	open, err := l.operate(ctx, "/v1/sessions", l.key(), ask)
	if err != nil || l.interrupted(open) {
		return err
	}
	if open.Outcome != api.OutcomeOK {
		return fmt.Errorf("open: %s %s %s", open.Outcome, open.ErrorCode, open.ErrorMessage)
	}
	id := open.SessionID
	for _, verb := range []string{"pause", "resume"} {
		for {
			r, err := l.operate(ctx, "/v1/sessions/"+id+"/"+verb, l.key(), api.SessionTarget{})
			if err != nil {
				return err
			}
			if l.forgetful && slices.Contains([]api.Code{api.CodeSessionNotFound, api.CodeSessionClosed, api.CodeSessionExpired}, r.ErrorCode) {
				return errMoot
			}
			if r.Outcome == api.OutcomeOK || l.mortal {
				break
			}
			if !l.interrupted(r) {
				return fmt.Errorf("%s: %s %s %s", verb, r.Outcome, r.ErrorCode, r.ErrorMessage)
			}
		}
	}
	for {
		r, err := l.operate(ctx, "/v1/close", l.key(), api.SessionClose{SessionID: id, Mode: "force"})
		if err != nil {
			return err
		}
		if r.Outcome == api.OutcomeOK && (r.Payload.Close.Status == "closed" || l.forgetful) {
			return nil
		}
		if l.forgetful && r.ErrorCode == api.CodeSessionNotFound {
			return errMoot
		}
		if !l.interrupted(r) {
			return fmt.Errorf("close: %s %s %s %+v", r.Outcome, r.ErrorCode, r.ErrorMessage, r.Payload.Close)
		}
	}
}

// refused asks for what policy denies.
func (l *load) refused(ctx context.Context) error {
	r, err := l.operate(ctx, "/v1/sessions", l.key(), api.SessionOpen{Profile: "none", Target: api.Target{Local: &api.Local{}}})
	if err == nil && r.Outcome != api.OutcomeDenied {
		err = fmt.Errorf("%s %s", r.Outcome, r.ErrorCode)
	}
	return err
}

// signed has the journal signed.
func (l *load) signed(ctx context.Context) error {
	_, err := l.read(ctx, "/v1/checkpoint", new(api.Checkpoint))
	return err
}

// recheck asks for the receipts that were answered since the last time: whoever was answered finds
// the same bytes, whichever daemon it is.
func (l *load) recheck(ctx context.Context) {
	l.mu.Lock()
	fresh := l.fresh
	l.fresh = nil
	l.mu.Unlock()
	for _, intent := range fresh {
		status, answer, err := l.ask(ctx, http.MethodGet, "/v1/receipts/"+url.PathEscape(intent), "", nil)
		if err == nil && l.forgetful && (status == http.StatusNotFound || status == http.StatusGone) {
			continue
		}
		if err == nil {
			_, err = l.keep("receipt "+intent, status, answer)
		}
		if err != nil {
			l.fault("%v", err)
		}
	}
}

// ran is how often each command has left its line.
func (l *load) ran() (map[string]int, error) {
	content, err := os.ReadFile(filepath.Join(l.work, "ran"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	counts := map[string]int{}
	for _, key := range strings.Fields(string(content)) {
		counts[key]++
	}
	return counts, nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
