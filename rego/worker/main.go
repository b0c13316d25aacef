package worker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	_ "time/tzdata" // there is no file left to read them from

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// Main is a worker: what a program does when it is started by a [Pool]. It returns when the pool has ended, or does
// not want it.
func Main() error { return serve(compiled) }

// compiled is the evaluator of a revision.
func compiled(fsys fs.FS) (evaluator, error) { return rego.Load(fsys, rego.Options{}) }

// toldTests is how many tests that fail are named.
const toldTests = 10

// tested is an evaluator of a revision whose own tests pass.
func tested(fsys fs.FS) (evaluator, error) {
	b, err := rego.ReadBundle(fsys)
	if err != nil {
		return nil, err
	}
	results, _, err := b.Test(context.Background(), rego.TestOptions{})
	if err != nil {
		return nil, err
	}
	var failed []error
	more := 0
	for _, r := range results {
		switch {
		case r.Pass() || r.Skip:
		case len(failed) < toldTests:
			failed = append(failed, fmt.Errorf("%s:%d: test %s fails", r.Location.File, r.Location.Row, r.Name))
		default:
			more++
		}
	}
	if more > 0 {
		failed = append(failed, fmt.Errorf("and %d more", more))
	}
	if len(failed) > 0 {
		return nil, errors.Join(failed...)
	}
	return compiled(fsys)
}

// evaluator answers questions about one revision.
type evaluator interface {
	Evaluate(ref string, canonical []byte, nowNS int64) rego.Answer
	Digest() string
	Defines(ref string) bool
}

// loader makes an evaluator of a revision.
type loader func(fs.FS) (evaluator, error)

// socket is the one descriptor that a worker has, beside two of /dev/null.
const socket = 0

// What the heap of a worker may be. Collecting at 100 % would cost more than the memory is worth.
const (
	garbage  = 400      // per cent of what is live
	maxStack = 64 << 20 // of the goroutine that evaluates
)

func serve(load loader) error {
	runtime.LockOSThread() // see confine
	// A service manager may signal all of us; the pool ends when its decisions have been given.
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	var c conn
	body, err := c.expect(kindConfine)
	if err != nil {
		return err
	}
	var o order
	if err := json.Unmarshal(body, &o); err != nil {
		return fmt.Errorf("confine: %w", err)
	}
	debug.SetGCPercent(garbage)
	debug.SetMemoryLimit(o.Memory / 4 * 3)
	debug.SetMaxStack(maxStack)
	if err := confine(o); err != nil {
		return c.refuse(fmt.Errorf("confine: %w", err))
	}
	go leaveWith(socket)
	if err := c.say(kindConfined, nil); err != nil {
		return err
	}
	if o.Tests {
		load = tested
	}
	e, err := c.load(load)
	if err != nil {
		return c.refuse(err)
	}
	for {
		body, err := c.expect(kindAsk)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		q, err := parseQuestion(body)
		if err != nil {
			return err
		}
		if err := c.write(end(appendAnswer(begin(c.out, kindAnswer), q.number, bounded(e.Evaluate(q.ref, q.canonical, q.nowNS))))); err != nil {
			return err
		}
	}
}

// bounded is an answer that fits into a frame.
func bounded(a rego.Answer) rego.Answer {
	const most = 1 << 20
	if len(a.Result) > most {
		return rego.Answer{Code: api.CodePolicyResult, Message: fmt.Sprintf("a result of %d bytes, at most %d are read", len(a.Result), most), Rules: a.Rules}
	}
	return a
}

// leaveWith ends the process when the other end of the socket is closed, whatever is being evaluated.
func leaveWith(fd int32) {
	poll := []unix.PollFd{{Fd: fd, Events: unix.POLLRDHUP}}
	for {
		if n, err := unix.Ppoll(poll, nil, nil); n > 0 || err != unix.EINTR {
			os.Exit(0)
		}
	}
}

// conn is a worker's end of the socket. It waits in the kernel and not in the runtime's poller, which would be another
// thread to wake.
type conn struct {
	in, out []byte
}

// load takes a revision and says what it is.
func (c *conn) load(load loader) (evaluator, error) {
	revision, err := c.expect(kindLoad)
	if err != nil {
		return nil, err
	}
	fsys, err := unpack(revision)
	if err != nil {
		return nil, err
	}
	e, err := load(fsys)
	if err != nil {
		return nil, err
	}
	r := ready{Digest: e.Digest()}
	for _, q := range rego.Questions() {
		if e.Defines(q.Entrypoint) {
			r.Defines = append(r.Defines, q.Entrypoint)
		}
	}
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	c.in = nil // of the revision's size
	return e, c.say(kindReady, body)
}

// refuse says why there is no worker, and returns it.
func (c *conn) refuse(why error) error {
	text := why.Error()
	return errors.Join(why, c.say(kindRefused, []byte(text[:min(len(text), maxReply/2)])))
}

func (c *conn) say(kind byte, body []byte) error {
	return c.write(end(append(begin(c.out, kind), body...)))
}

func (c *conn) write(frame []byte) error {
	c.out = frame
	for len(frame) > 0 {
		n, err := unix.Write(socket, frame)
		if err != nil && err != unix.EINTR {
			return fmt.Errorf("write: %w", err)
		}
		frame = frame[max(n, 0):]
	}
	return nil
}

// expect reads the next frame, which must be of a kind. Its body is valid until the next one is read.
func (c *conn) expect(kind byte) ([]byte, error) {
	if cap(c.in) == 0 {
		c.in = make([]byte, 0, 64<<10)
	}
	c.in = c.in[:0]
	for {
		if len(c.in) >= headerSize {
			size := headerSize + int(binary.LittleEndian.Uint32(c.in))
			if size > headerSize+maxRevision || c.in[4] != kind || len(c.in) > size {
				return nil, fmt.Errorf("frame of kind %d and %d bytes: %w", c.in[4], size, errProtocol)
			}
			if len(c.in) == size {
				return c.in[headerSize:], nil
			}
			if cap(c.in) < size {
				c.in = append(make([]byte, 0, size), c.in...)
			}
		}
		n, err := unix.Read(socket, c.in[len(c.in):cap(c.in)])
		switch {
		case err == unix.EINTR:
		case err != nil:
			return nil, fmt.Errorf("read: %w", err)
		case n == 0:
			return nil, io.EOF
		default:
			c.in = c.in[:len(c.in)+n]
		}
	}
}
