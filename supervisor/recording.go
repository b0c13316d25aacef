package supervisor

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/prompt"
	"github.com/stockade-dev/stockade/internal/spool"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// A recording is what a shell looked like, from its beginning on, as an asciicast v2 that any asciinema player plays. While the
// shell lives it is read off its log, which keeps its beginning and notes of what happened beside the output; when it has ended,
// it is written out once, and is part of the receipt. What is read is a function of the log, so both are the same bytes.

// The notes of a shell's log. The data of the header is the first line of the asciicast, that of a size is its event's,
// that of what was typed is what was; of what must be in no record there is nothing.
const (
	noteHeader = 'h'
	noteSize   = 'r'
	noteTyped  = 'i'
	noteSecret = 's'
)

// castHeader is the first line of an asciicast v2.
type castHeader struct {
	Version   int               `json:"version"`
	Width     int               `json:"width"`
	Height    int               `json:"height"`
	Timestamp int64             `json:"timestamp"` // Unix time in seconds
	Command   string            `json:"command"`
	Title     string            `json:"title"`
	Env       map[string]string `json:"env"`
}

// record begins the recording, where the session's grant has one. A shell that is to be recorded and cannot be does not start.
func (x *execution) record(s *Supervisor) *api.Error {
	if x.shell == nil || x.plan.record.Bytes == 0 {
		return nil
	}
	now := s.now()
	h := castHeader{
		Version: 2, Width: x.shell.cols, Height: x.shell.rows, Timestamp: now.Unix(), Title: x.id + " in " + x.session.id,
		Command: strings.ToValidUTF8(strings.Join(x.plan.exec.Argv, " "), "\uFFFD"),
		Env:     map[string]string{"SHELL": strings.ToValidUTF8(path.Base(x.plan.exec.Argv[0]), "\uFFFD")},
	}
	for _, e := range x.plan.exec.Env {
		if term, ok := strings.CutPrefix(e, "TERM="); ok {
			h.Env["TERM"] = strings.ToValidUTF8(term, "\uFFFD")
		}
	}
	line, err := json.Marshal(h, json.Deterministic(true))
	if err == nil {
		err = x.log.Record(x.plan.record.Bytes)
	}
	if err == nil {
		err = x.log.Note(spool.Note{Kind: noteHeader, AtNS: now.UnixNano(), Data: line})
	}
	if err != nil {
		return api.Errorf(api.CodeOutputStoreFailed, "the shell is to be recorded: %v", err)
	}
	return nil
}

// noteResized notes another size of the terminal.
func (x *execution) noteResized(s *Supervisor, cols, rows int) {
	x.note(s, spool.Note{Kind: noteSize, At: x.log.Kept(spool.Stdout), AtNS: s.now().UnixNano(), Data: fmt.Appendf(nil, "%dx%d", cols, rows)})
}

// noteTyping is called before something is typed, and what it returns when n bytes of it were. What is secret, and what is typed
// while nothing is to be seen of it, as a password is, is not recorded.
func (x *execution) noteTyping(s *Supervisor, b []byte, secret bool) (typed func(n int64)) {
	if x.shell == nil || !x.plan.record.Input {
		return func(int64) {}
	}
	n := spool.Note{Kind: noteTyped, At: x.log.Kept(spool.Stdout), AtNS: s.now().UnixNano()}
	if secret || unseen(x.input.pipe) {
		n.Kind = noteSecret
	}
	return func(written int64) {
		if n.Kind == noteTyped {
			n.Data = b[:written]
		}
		if written > 0 {
			x.note(s, n)
		}
	}
}

func (x *execution) note(s *Supervisor, n spool.Note) {
	if err := x.log.Note(n); err != nil {
		s.log.Warn("note of a recording", "exec_id", x.id, "error", err)
	}
}

// unseen reports whether the terminal reads a line of which it shows nothing. A shell that edits its line itself reads no lines.
func unseen(master any) bool {
	f, ok := master.(*os.File)
	if !ok {
		return false
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return false
	}
	hidden := false
	err = conn.Control(func(fd uintptr) {
		t, err := unix.IoctlGetTermios(int(fd), unix.TCGETS)
		hidden = err == nil && t.Lflag&unix.ICANON != 0 && t.Lflag&unix.ECHO == 0
	})
	return err == nil && hidden
}

// castInline is how large a recording may be that is in the receipt itself.
const castInline = 16 << 10

// recorded is the recording of a shell that has ended, or nil where there is none. The log is sealed.
func (x *execution) recorded(s *Supervisor) (*api.Recording, *api.Error) {
	if _, ok := x.log.Recorded(); !ok || x.shell == nil {
		return nil, nil
	}
	r, w := io.Pipe()
	var told castTold
	written := make(chan struct{})
	go func() {
		defer close(written)
		var err error
		told, err = writeCast(w, x.log, x.shell.nonce, true)
		w.CloseWithError(err)
	}()
	defer func() { r.Close(); <-written }() // the log is closed after this
	sum := sha256.New()
	in := bufio.NewReaderSize(io.TeeReader(r, sum), castInline+1)
	out := &api.Output{}
	small, err := in.Peek(castInline + 1)
	switch {
	case err == io.EOF:
		out.InlineText = &api.InlineText{Text: string(small)}
	case err == nil:
		var ref string
		var size int64
		if ref, size, err = s.blobs.Put(in, ""); err == nil {
			out.Blob = &api.BlobOutput{BlobRef: ref, SizeBytes: size}
			err = io.EOF
		}
	}
	if err != io.EOF {
		return nil, api.Errorf(api.CodeOutputStoreFailed, "recording: %v", err)
	}
	return &api.Recording{
		Digest: "sha256:" + hex.EncodeToString(sum.Sum(nil)), Cast: out,
		Events: told.events, DurationNS: told.last, Input: x.plan.record.Input, Truncated: told.truncated,
	}, nil
}

// castTold is what there is to say of an asciicast that was written.
type castTold struct {
	events, last int64
	truncated    bool
}

// writeCast writes the recording of a log, with what was typed; whole says that nothing follows.
func writeCast(w io.Writer, log *spool.Log, nonce string, whole bool) (castTold, error) {
	kept, _ := log.Recorded()
	total := log.Total(spool.Stdout)
	c := cast{w: bufio.NewWriterSize(w, 64<<10), tape: logTape(log, nonce, whole && kept == total)}
	c.tape.first, c.tape.end = 0, kept
	all, err := log.Notes(c.note)
	if err == nil {
		err = c.output(kept)
	}
	if err != nil {
		return c.told, err
	}
	if len(c.rest) > 0 {
		err = c.event(c.told.last, "o", string([]rune(string(c.rest))))
	}
	if !all {
		c.told.truncated = true
		err = errors.Join(err, c.event(c.told.last, "m", "truncated: sizes and input of here on were not recorded"))
	}
	if total > kept {
		c.told.truncated = true
		if whole {
			err = errors.Join(err, c.event(c.told.last, "m", fmt.Sprintf("truncated: %d bytes of output follow", total-kept)))
		}
	}
	return c.told, cmp.Or(err, c.w.Flush())
}

// cast is an asciicast while it is written.
type cast struct {
	w     *bufio.Writer
	tape  *tape
	at    int64 // how far the tape has been read
	begun int64 // Unix time of the header
	rest  []byte
	told  castTold
}

func (c *cast) note(n spool.Note) error {
	if n.Kind == noteHeader {
		c.begun = n.AtNS
		_, err := fmt.Fprintf(c.w, "%s\n", n.Data)
		return err
	}
	if err := c.output(min(n.At, c.tape.end)); err != nil {
		return err
	}
	switch n.Kind {
	case noteSize:
		return c.event(n.AtNS-c.begun, "r", string(n.Data))
	case noteTyped:
		return c.event(n.AtNS-c.begun, "i", string([]rune(string(n.Data))))
	case noteSecret:
		return c.event(n.AtNS-c.begun, "i", "[not recorded]")
	}
	return nil
}

// output writes the output up to an offset. A character that is not whole waits for the rest of it; what is none is U+FFFD.
func (c *cast) output(until int64) error {
	for c.at < until {
		p, err := c.tape.read(c.at, until-c.at)
		if err != nil {
			return err
		}
		if p.next == c.at {
			return nil
		}
		c.at = p.next
		b := append(c.rest, p.bytes...)
		whole := len(b) - partial(b)
		c.rest = bytes.Clone(b[whole:])
		if whole > 0 {
			if err := c.event(p.atNS-c.begun, "o", string([]rune(string(b[:whole])))); err != nil {
				return err
			}
		}
	}
	return nil
}

// partial is how many bytes at the end of b begin a character that is not whole.
func partial(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if tail := b[len(b)-n:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return n
			}
			return 0
		}
	}
	return 0
}

// event writes one line. Time does not go back.
func (c *cast) event(ns int64, kind, data string) error {
	c.told.last = max(c.told.last, ns)
	c.told.events++
	b := fmt.Appendf(c.w.AvailableBuffer(), "[%d.%06d, %q, ", c.told.last/1e9, c.told.last%1e9/1e3, kind)
	b, err := jsontext.AppendQuote(b, data)
	if err != nil {
		panic(err) // it is UTF-8
	}
	_, err = c.w.Write(append(b, "]\n"...))
	return err
}

// host.shell.recording

// OpenRecording returns the recording of a shell as an asciicast: what there is of one that lives, all of one that has ended. What was
// typed is in it where it was recorded and the request wants it. The caller closes it.
func (s *Supervisor) OpenRecording(ctx context.Context, req *api.Request) (io.ReadCloser, *api.Receipt, error) {
	p, denial, err := s.permitProcess(req)
	switch {
	case denial != nil || err != nil:
		return nil, denial, err
	case !p.Shell:
		return nil, nil, errNoShell
	}
	content, err := s.recording(ctx, req, p.ExecID)
	if err != nil || req.Read.Input {
		return content, nil, err
	}
	return withoutInput(content), nil, nil
}

var errNotRecorded = api.Errorf(api.CodeNotRecorded, "the grant of the session did not have its shells recorded, or the recording is not kept any more")

func (s *Supervisor) recording(ctx context.Context, req *api.Request, exec string) (io.ReadCloser, error) {
	if x := s.registry.execution(req.Principal, api.ProcessRef{ExecID: exec}); x != nil {
		if x.follow() {
			if _, ok := x.log.Recorded(); !ok {
				x.leave()
				return nil, errNotRecorded
			}
			return castOf(x.log, x.shell.nonce, false, x.leave), nil
		}
		if _, err := x.call.wait(ctx); err != nil { // between its log and its receipt
			return nil, err
		}
	}
	byID := *req.Read
	byID.ExecID, byID.IntentID = exec, ""
	r, err := s.receiptOf(&api.Request{Principal: req.Principal, Read: &byID})
	if err != nil {
		return nil, err
	}
	if r.Payload.Exec != nil && r.Payload.Exec.Recording != nil {
		content, err := s.recorded(r.Payload.Exec.Recording.Cast)
		if err != nil {
			return nil, missing(err)
		}
		return struct {
			io.Reader
			io.Closer
		}{io.NewSectionReader(content, 0, math.MaxInt64), content}, nil
	}
	// One that was lost with its supervisor has what there is of it.
	if !s.admission.enter() {
		return nil, api.Errorf(api.CodeShuttingDown, "the supervisor is shutting down")
	}
	defer s.admission.leave()
	log, err := s.spool.Recover(exec, math.MaxInt64)
	if err != nil {
		return nil, outputError(err)
	}
	if _, ok := log.Recorded(); !ok {
		log.Close()
		return nil, errNotRecorded
	}
	log.Seal()
	return castOf(log, prompt.Nonce(s.salt, exec), true, log.Close), nil
}

// castOf is the asciicast of a log as it is read; done follows its end.
func castOf(log *spool.Log, nonce string, whole bool, done func()) io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		defer done()
		_, err := writeCast(w, log, nonce, whole)
		w.CloseWithError(err)
	}()
	return r
}

// withoutInput leaves out of an asciicast what was typed.
func withoutInput(from io.ReadCloser) io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		defer from.Close()
		for in := bufio.NewReader(from); ; {
			line, err := in.ReadBytes('\n')
			if _, event, ok := bytes.Cut(line, []byte(", ")); !ok || line[0] != '[' || !bytes.HasPrefix(event, []byte(`"i"`)) {
				if _, failed := w.Write(line); failed != nil {
					return
				}
			}
			if err != nil {
				if errors.Is(err, io.EOF) {
					err = nil
				}
				w.CloseWithError(err)
				return
			}
		}
	}()
	return r
}
