package supervisor

import (
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stockade-dev/stockade/internal/escape"
	"github.com/stockade-dev/stockade/internal/prompt"
	"github.com/stockade-dev/stockade/internal/spool"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// shell is what an execution on a terminal has beyond others: where it is, by what comes out of it and what is typed. It is
// a function of the log, the inputs and what the supervisor was asked; a supervisor that comes later reads the log again.
//
//	RUNNING ──prompt──▶ IDLE ──a line, or a command begins──▶ BUSY ──prompt──▶ IDLE
//	   └──────┴──────────┴────────────── close ──▶ CLOSING ──▶ CLOSED
//	                                     killed, lost ──▶ ERROR
type shell struct {
	nonce   string
	changed wake          // of those who wait for another state
	kick    chan struct{} // wakes who follows; capacity 1

	reading sync.Mutex // one advance at a time

	mu         sync.Mutex
	cols, rows int
	at         int64 // how far the log has been read
	past       int64 // how far it was written for a supervisor before
	status     api.ShellState
	closing    bool
	hooked     bool  // it is to say where commands end,
	starts     bool  // and where they begin
	marked     bool  // it says that,
	begins     bool  // and where they begin
	guessed    int64 // where it was last thought to wait, or a line was typed at what looked like a prompt
	line       []byte
	asked      *api.ShellPrompt // the prompt that a mark said is there
	next       bool             // it is the one that follows, and not one that is drawn again
	pending    []pendingCommand
	current    *api.ShellCommand
	last       *api.ShellCommand // that has ended, until its prompt is there
	ended      []api.ShellCommand
	minted     int64
	count      int64        // of commands that have ended
	news       []transition // that no frame tells of yet
	skipped    int64        // and those that none is going to
	recalled   *recollection

	writer    *seat // who is attached and types; nil when nobody is
	observers map[*seat]bool
}

// seat is somebody attached.
type seat struct {
	name    string
	demoted chan struct{} // closed when somebody else types
}

// sit attaches somebody. Who is to type, where somebody else does, needs takeover.
func (sh *shell) sit(name string, types, takeover bool) (*seat, *api.Error) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if types {
		if err := sh.freePen(takeover); err != nil {
			return nil, err
		}
	}
	p := &seat{name, make(chan struct{})}
	if types {
		sh.writer = p
		return p, nil
	}
	if sh.observers == nil {
		sh.observers = map[*seat]bool{}
	}
	sh.observers[p] = true
	return p, nil
}

// freePen makes whoever types an observer. The caller holds mu.
func (sh *shell) freePen(takeover bool) *api.Error {
	if sh.writer == nil {
		return nil
	}
	if !takeover {
		return api.Errorf(api.CodeWriterHeld, "%s is attached to the shell and types; takeover makes him an observer", sh.writer.name)
	}
	close(sh.writer.demoted)
	if sh.observers == nil {
		sh.observers = map[*seat]bool{}
	}
	sh.observers[sh.writer] = true
	sh.writer = nil
	return nil
}

// rise is the end of somebody's being attached.
func (sh *shell) rise(p *seat) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	delete(sh.observers, p)
	if sh.writer == p {
		sh.writer = nil
	}
}

// hold lets one request type, or only act.
func (sh *shell) hold(takeover, types bool) *api.Error {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if !types {
		return nil
	}
	return sh.freePen(takeover)
}

// audience is who is attached. The caller holds mu.
func (sh *shell) audience() (writer string, observers int) {
	if sh.writer != nil {
		writer = sh.writer.name
	}
	return writer, len(sh.observers)
}

// pendingCommand is a line that was typed, and has not been seen to be a command.
type pendingCommand struct {
	id, input string
	typed     time.Time
	idle      bool // it was typed at a prompt, or there was one since: at the next prompt it has been no command
}

// transition is a change of state.
type transition struct {
	status   api.ShellState
	command  string
	exitCode *int
	timed    bool          // it is the end of a command of which the beginning was told,
	took     time.Duration // and which lasted so long
	count    int64
	at       int64 // in the output
}

const (
	keptCommands = 64   // that have ended
	keptLine     = 1024 // bytes of the last line
	keptNews     = 64   // changes that wait for their frames; a shell is not to fill the journal
	readShell    = 64 << 10
)

func newShell(nonce string, t *api.Terminal) *shell {
	return &shell{nonce: nonce, kick: make(chan struct{}, 1), cols: t.Cols, rows: t.Rows, status: api.ShellRunning}
}

// tape is the output of a shell, wherever it is kept: bytes by their offsets, marks among them.
type tape struct {
	io.ReaderAt
	first, end int64
	whole      bool                                // nothing follows end
	arrived    func(off int64) (until, atNS int64) // of the bytes at off: what came with them, and when
	nonce      string
}

// logTape is that of a log.
func logTape(log *spool.Log, nonce string, whole bool) *tape {
	return &tape{
		ReaderAt: streamReader{log, spool.Stdout}, first: log.First(spool.Stdout), end: log.Kept(spool.Stdout), whole: whole, nonce: nonce,
		arrived: func(off int64) (int64, int64) {
			for _, c := range log.Chunks(log.Position(off, 1<<62), 2) {
				if c.Stream == spool.Stdout && !c.Dropped {
					return c.Offset + c.Length, c.AtNS
				}
			}
			return 1 << 62, 0
		},
	}
}

// piece is output up to a mark, or up to where something else came at another time.
type piece struct {
	offset, next int64
	bytes        []byte
	mark         *prompt.Mark
	atNS         int64
}

// read gives the piece at an offset, of most bytes at most. It is empty, with next where it was, when there is nothing more for now.
func (t *tape) read(off, most int64) (piece, error) {
	p := piece{offset: off, next: off}
	buf := make([]byte, min(t.end-off, max(most, 1)+256, readShell+256))
	if len(buf) == 0 {
		return p, nil
	}
	n, err := t.ReadAt(buf, off)
	if err != nil && err != io.EOF {
		return p, err
	}
	text, mark, used := prompt.Next(t.nonce, buf[:n], t.whole && off+int64(n) >= t.end)
	until, at := t.arrived(off)
	if room := min(most, until-off); int64(len(text)) > room {
		text, mark, used = text[:room], nil, int(room)
	}
	p.bytes, p.mark, p.next, p.atNS = text, mark, off+int64(used), at
	return p, nil
}

// advance reads what has come since.
func (sh *shell) advance(log *spool.Log, whole bool, now time.Time) error {
	sh.reading.Lock()
	defer sh.reading.Unlock()
	for t := logTape(log, sh.nonce, whole); ; {
		sh.mu.Lock()
		off := max(sh.at, t.first)
		sh.mu.Unlock()
		p, err := t.read(off, readShell)
		switch {
		case errors.Is(err, spool.ErrGone): // it was overwritten meanwhile
			t = logTape(log, sh.nonce, whole)
			continue
		case err != nil || p.next == off:
			return err
		}
		sh.take(p, now)
	}
}

// take applies a piece of output.
func (sh *shell) take(p piece, now time.Time) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.at = p.next
	if p.next <= sh.past && p.atNS > 0 { // it is read again
		now = time.Unix(0, p.atNS)
	}
	if len(p.bytes) > 0 {
		sh.line = append(sh.line, p.bytes...)
		if at := strings.LastIndexByte(string(sh.line), '\n'); at >= 0 {
			sh.line = sh.line[at+1:]
		}
		sh.line = sh.line[max(0, len(sh.line)-keptLine):]
		if sh.status != api.ShellIdle {
			sh.asked = nil
		}
	}
	if p.mark == nil {
		return
	}
	if !sh.marked { // that it began to is not kept any more, unless this says it
		sh.marked, sh.begins = true, sh.starts
	}
	switch p.mark.Kind {
	case prompt.Ready:
		sh.marked, sh.begins = true, p.mark.Arg != ""
	case prompt.Output:
		sh.begin(p, now)
	case prompt.Done:
		sh.done(p, now)
	case prompt.Prompt:
		sh.line, sh.next = sh.line[:0], true
	case prompt.Input:
		again := !sh.next
		sh.next = false
		if again && len(sh.pending) > 0 && sh.pending[0].idle { // for another size, over a line that was typed at it and is not read yet
			return
		}
		sh.asked = &api.ShellPrompt{Text: readable(sh.line), Source: "mark"}
		sh.prompted(p.next)
	}
}

// begin is a command that was read.
func (sh *shell) begin(p piece, now time.Time) {
	c := api.ShellCommand{StartedAtNS: now.UnixNano(), From: p.next}
	if r := sh.recalled; r != nil && (p.next <= r.until || r.running != "") {
		if p.next > r.until {
			c.CommandID, r.running = r.running, ""
		}
		sh.current, sh.status = &c, api.ShellBusy
		return
	}
	if len(sh.pending) > 0 {
		c.CommandID, c.InputID = sh.pending[0].id, sh.pending[0].input
		sh.pending = sh.pending[1:]
	} else {
		c.CommandID = sh.mint()
	}
	sh.current = &c
	sh.become(api.ShellBusy, c.CommandID, nil)
}

// done is a command that has ended, if there was one: an empty line has a status, too.
func (sh *shell) done(p piece, now time.Time) {
	if sh.current == nil && !sh.begins && len(sh.pending) > 0 { // it does not say where they begin
		sh.current = sh.pending[0].begun(p.offset)
		sh.pending = sh.pending[1:]
	}
	c := sh.current
	if c == nil {
		return
	}
	sh.current = nil
	c.EndedAtNS, c.To = now.UnixNano(), p.offset+int64(len(p.bytes))
	if c.CommandID == "" {
		if c.CommandID = sh.recalled.ends[c.To]; c.CommandID == "" {
			c.CommandID = sh.mint()
		}
	}
	if code, ok := p.mark.ExitCode(); ok {
		c.ExitCode = &code
	}
	sh.keep(c)
	sh.last = c
}

// begun is a line that is a command, whose output begins at an offset.
func (p pendingCommand) begun(from int64) *api.ShellCommand {
	return &api.ShellCommand{CommandID: p.id, InputID: p.input, StartedAtNS: p.typed.UnixNano(), From: from}
}

// keep has a command that has ended among the last that did.
func (sh *shell) keep(c *api.ShellCommand) {
	sh.ended = append(sh.ended, *c)
	sh.ended = sh.ended[max(0, len(sh.ended)-keptCommands):]
	sh.count++
}

// prompted is a prompt that is there: only from here on is what is typed a new line.
func (sh *shell) prompted(at int64) {
	ended := api.ShellCommand{To: at}
	if sh.last != nil {
		ended = *sh.last
	}
	sh.current, sh.last = nil, nil
	if r := sh.recalled; r != nil && ended.To <= r.until {
		sh.status = api.ShellIdle
		return
	}
	if r := sh.recalled; r != nil {
		r.running = "" // it was an empty line
	}
	sh.waits(&ended)
	switch {
	case len(sh.pending) == 0:
	case !sh.begins: // it does not say that it goes on with what was typed ahead
		sh.become(api.ShellBusy, sh.pending[0].id, nil)
	case sh.pending[0].idle:
		sh.pending = sh.pending[1:]
	default:
		sh.pending[0].idle = true
	}
}

// waits is a prompt behind a command, or behind none.
func (sh *shell) waits(ended *api.ShellCommand) {
	sh.become(api.ShellIdle, ended.CommandID, ended.ExitCode)
	if n := len(sh.news); n > 0 && sh.news[n-1].status == api.ShellIdle {
		sh.news[n-1].at = ended.To
		if sh.marked && ended.StartedAtNS > 0 {
			sh.news[n-1].timed, sh.news[n-1].took = true, time.Duration(ended.EndedAtNS-ended.StartedAtNS)
		}
	}
}

// How long nothing has come behind what looks like a prompt that is taken for one; and where marks are to come, which somebody's
// own files can have undone.
const (
	guessAfter  = 250 * time.Millisecond
	hookedAfter = 2 * time.Second
)

// guessIn is after how long the last line is to be taken for a prompt if nothing comes, and up to where the output has been read; or 0.
func (sh *shell) guessIn() (after time.Duration, at int64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	switch {
	case sh.marked || sh.closing || sh.status == api.ShellIdle || sh.at <= sh.guessed || looks(sh.line) == nil:
		return 0, 0
	case sh.hooked:
		return hookedAfter, sh.at
	}
	return guessAfter, sh.at
}

// guess takes the last line for a prompt, of a program that does not say where its prompts are. A command ends with that as far as
// such a program is concerned: it has no exit code.
func (sh *shell) guess(now time.Time) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.guessed = sh.at
	ended := api.ShellCommand{To: sh.at}
	r := sh.recalled
	switch {
	case r != nil && sh.at <= r.until:
		sh.status = api.ShellIdle
		return
	case sh.current != nil:
		sh.current.EndedAtNS, sh.current.To = now.UnixNano(), sh.at
		sh.keep(sh.current)
		ended = *sh.current
	case r != nil:
		ended.CommandID, r.running = r.running, ""
	}
	sh.current, sh.pending = nil, nil
	sh.waits(&ended)
}

func (sh *shell) become(status api.ShellState, command string, exit *int) {
	if sh.closing || status == sh.status && exit == nil {
		return
	}
	sh.set(status, command, exit)
}

func (sh *shell) set(status api.ShellState, command string, exit *int) {
	sh.status = status
	if len(sh.news) < keptNews {
		sh.news = append(sh.news, transition{status: status, command: command, exitCode: exit, count: sh.count})
	} else {
		sh.skipped++
	}
	sh.changed.all()
	select {
	case sh.kick <- struct{}{}:
	default:
	}
}

func (sh *shell) mint() string {
	sh.minted++
	return "c-" + strconv.FormatInt(sh.minted, 10)
}

// typed notes what is about to be typed, and gives it a name if it ends a line.
func (sh *shell) typed(b []byte, input string, now time.Time) (command string) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if !slices.ContainsFunc(b, func(c byte) bool { return c == '\n' || c == '\r' }) {
		return ""
	}
	command = sh.mint()
	if sh.status == api.ShellIdle { // it has read all that was typed before: who else did is not known
		sh.pending = nil
	}
	sh.pending = append(sh.pending, pendingCommand{command, input, now, sh.status == api.ShellIdle})
	if len(sh.pending) > keptCommands {
		sh.pending = sh.pending[1:]
	}
	if sh.status == api.ShellIdle {
		sh.asked = nil
		if !sh.marked {
			sh.guessed, sh.current = sh.at, sh.pending[0].begun(sh.at)
		}
		sh.become(api.ShellBusy, command, nil)
	}
	return command
}

// endedAt is the command whose output ended at an offset, or "". It is not known of those before what is kept.
func (sh *shell) endedAt(off int64) (command string, known bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for i := len(sh.ended) - 1; i >= 0 && sh.ended[i].To >= off; i-- {
		if sh.ended[i].To == off {
			return sh.ended[i].CommandID, true
		}
	}
	return "", sh.count == int64(len(sh.ended)) || off > sh.ended[0].To
}

// recollection is what the frames of a shell say of its commands: their names are given once, and no output has them.
type recollection struct {
	ends    map[int64]string // the commands that have ended, by where
	until   int64            // where the last state was noted that has a place in the output
	running string           // the command that was typed at the prompt there, or ""
	minted  int64
}

// recollect reads frames, in their order.
func recollect(frames []api.Frame) *recollection {
	r := &recollection{ends: map[int64]string{}}
	for _, f := range frames {
		p := f.Payload
		if n, err := strconv.ParseInt(strings.TrimPrefix(p.CommandID, "c-"), 10, 64); err == nil {
			r.minted = max(r.minted, n)
		}
		if f.Kind == api.FrameShell && p.Status == api.ShellBusy {
			r.running = p.CommandID
		}
		if at, command := endingOf(&f); at > 0 {
			r.until, r.running = max(r.until, at), ""
			if command != "" {
				r.ends[at] = command
			}
		}
	}
	return r
}

// endingOf is where a prompt was there, or the output of the command before it ended, if a frame tells of that.
func endingOf(f *api.Frame) (at int64, command string) {
	if f.Kind != api.FrameShell || f.Payload.Status == api.ShellBusy {
		return 0, ""
	}
	return f.Payload.Offset, f.Payload.CommandID
}

// recall has a shell that is read again give its commands the names that they have, and tell nothing twice. Frames that say
// nothing of places are those of a supervisor that did not know them.
func (sh *shell) recall(r *recollection) {
	if r.until > 0 {
		sh.recalled, sh.minted = r, r.minted
	}
}

// close begins the end.
func (sh *shell) close() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if !sh.closing {
		sh.set(api.ShellClosing, "", nil)
		sh.closing = true
	}
}

// resized notes the size, and reports whether it is another one.
func (sh *shell) resized(cols, rows int) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	other := sh.cols != cols || sh.rows != rows
	sh.cols, sh.rows = cols, rows
	return other
}

// state is where it is, and how many commands have ended.
func (sh *shell) state() api.ShellState {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.status
}

func (sh *shell) commands() int64 {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.count
}

// idle reports whether it waits for its user, and says so: on a guess nobody's session is to end.
func (sh *shell) idle() bool {
	if sh == nil {
		return false
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.marked && sh.status == api.ShellIdle
}

// works is for how long a command has been running in it, 0 if none does. It is not known of a program that does not say so.
func (sh *shell) works(now time.Time) (command string, ran time.Duration, known bool) {
	if sh == nil {
		return "", 0, false
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	switch {
	case sh.current != nil:
		return sh.current.CommandID, now.Sub(time.Unix(0, sh.current.StartedAtNS)), sh.marked
	case sh.status == api.ShellBusy && len(sh.pending) > 0: // it does not say where they begin
		return sh.pending[0].id, now.Sub(sh.pending[0].typed), sh.marked
	}
	return "", 0, sh.marked
}

// prompt is what the last line asks, by a mark or by its looks.
func (sh *shell) prompt() *api.ShellPrompt {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.asked != nil {
		return sh.asked
	}
	return looks(sh.line)
}

// looksAsking is the end of a line with which programs ask: a REPL, a shell that is not marked, a question.
var looksAsking = regexp.MustCompile(`^(?:>>>|\.\.\.|In \[\d+\]:|\S{0,80}[$#%>:?])\x20$|^[^\n]{0,200}(?:[$#%>]|\?|:) $`)

func looks(line []byte) *api.ShellPrompt {
	text := readable(line)
	if !looksAsking.MatchString(text) {
		return nil
	}
	return &api.ShellPrompt{Text: text, Source: "pattern"}
}

// readable is text as it would be read: without escape sequences, and without whatever else is not for reading.
func readable(b []byte) string {
	text := escape.Strip(strings.ToValidUTF8(string(b), string(utf8.RuneError)))
	if at := strings.LastIndexByte(strings.TrimRight(text, "\r"), '\r'); at >= 0 {
		text = text[at+1:]
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || !unicode.IsPrint(r) && r != utf8.RuneError {
			return -1
		}
		return r
	}, text)
}

// token is a place in the output of an execution, for its readers to keep.
func token(exec string, offset int64) string { return exec + "~" + strconv.FormatInt(offset, 36) }

// tailToken is the place of the last lines.
func tailToken(exec string) string { return exec + "~tail" }

func parseToken(text, exec string) (int64, *api.Error) {
	name, at, ok := strings.Cut(text, "~")
	offset, err := strconv.ParseInt(at, 36, 64)
	if !ok || name != exec || err != nil || offset < 0 || token(exec, offset) != text {
		return 0, api.Errorf(api.CodeInvalidToken, "%.80q is not a token of this shell", text)
	}
	return offset, nil
}
