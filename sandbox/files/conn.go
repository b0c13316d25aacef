package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/packet"
	"github.com/stockade-dev/stockade/sandbox/file"
)

// ErrGone says that the worker has ended, or that its socket is closed.
var ErrGone = errors.New("the file worker is gone")

// Pair returns a socket pair for Open and for the worker, which gets theirs as its standard input. The caller closes theirs
// once the worker has been started.
func Pair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	// Only our end is polled; the worker blocks in its reads.
	if err := unix.SetNonblock(fds[0], true); err != nil {
		packet.CloseAll(fds[:])
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fds[0]), "file worker"), os.NewFile(uintptr(fds[1]), "supervisor"), nil
}

// Conn is the supervisor's end of the conversation with one worker. Its methods may be called from many
// goroutines. The caller closes it; the worker ends with it.
type Conn struct {
	socket *packet.Conn
	gone   chan struct{} // closed when nothing more will be received

	mu    sync.Mutex
	last  uint64
	calls map[uint64]chan reply // each with capacity 1; nil once gone
}

type reply struct {
	kind byte
	body []byte
	fds  []int
}

// Open begins the conversation on our end of a Pair, which the Conn owns from now on, whatever comes of it. program is the ripgrep that the
// worker may have run; nil is none. It stays the caller's.
func Open(ctx context.Context, ours *os.File, c Config, program *os.File) (*Conn, error) {
	socket, err := packet.NewConn(ours)
	if err != nil {
		ours.Close()
		return nil, err
	}
	conn := &Conn{socket: socket, gone: make(chan struct{}), calls: map[uint64]chan reply{}}
	go conn.receive()
	var given []*os.File
	if program != nil {
		given = append(given, program)
	}
	r, err := conn.ask(ctx, kindBegin, begin{version, c}, given...)
	if err == nil {
		packet.CloseAll(r.fds)
		switch r.kind {
		case kindReady:
			return conn, nil
		case kindFailed:
			var why failure
			if err = decode(r.body, &why); err == nil {
				err = fmt.Errorf("the file worker cannot serve: %s", why.Message)
			}
		default:
			err = errMalformed
		}
	}
	conn.Close()
	return nil, err
}

// Look says what a request is about to touch, by what its paths lead to now. blobs are the contents that it names, by name; they stay the
// caller's. An error is one of the conversation.
func (c *Conn) Look(ctx context.Context, r *file.Request, blobs map[string]*os.File) (file.Sight, *file.Fault, error) {
	got, err := c.request(ctx, kindLook, kindSeen, r, blobs)
	if err != nil {
		return file.Sight{}, nil, err
	}
	packet.CloseAll(got.fds)
	var s seen
	err = decode(got.body, &s)
	return s.Sight, s.Fault, err
}

// Do carries a request out. content is what the result names as a blob, nil if it names none: the caller's to read, from its beginning,
// and to close. An error is one of the conversation, or ctx's: what became of the request is then unknown.
func (c *Conn) Do(ctx context.Context, r *file.Request, blobs map[string]*os.File) (_ *file.Result, content *os.File, _ error) {
	got, err := c.request(ctx, kindDo, kindDone, r, blobs)
	if err != nil {
		return nil, nil, err
	}
	var d done
	if err = decode(got.body, &d); err == nil && (d.Result.Op != r.Op || !d.Result.Formed()) {
		err = errMalformed
	}
	if err != nil {
		packet.CloseAll(got.fds)
		return nil, nil, err
	}
	stored := d.Result.Blob()
	if stored == nil || len(got.fds) != 1 {
		packet.CloseAll(got.fds)
		if stored != nil {
			return nil, nil, errMalformed
		}
		return &d.Result, nil, nil
	}
	content, size, err := sealed(got.fds[0])
	if err == nil && (size != stored.SizeBytes || size > maxContent) {
		content.Close()
		err = errMalformed
	}
	if err == nil {
		_, err = content.Seek(0, io.SeekStart)
	}
	return &d.Result, content, err
}

// Mend ends what is left of a request with which an earlier worker was lost: the whole of its change, or nothing.
func (c *Conn) Mend(ctx context.Context, r *file.Request, blobs map[string]*os.File) error {
	got, err := c.request(ctx, kindMend, kindMended, r, blobs)
	packet.CloseAll(got.fds)
	return err
}

func (c *Conn) request(ctx context.Context, kind, want byte, r *file.Request, blobs map[string]*os.File) (reply, error) {
	a := ask{Request: *r}
	var content []*os.File
	for name, f := range blobs {
		a.Blobs, content = append(a.Blobs, name), append(content, f)
	}
	got, err := c.ask(ctx, kind, a, content...)
	if err == nil && got.kind != want {
		packet.CloseAll(got.fds)
		err = errMalformed
	}
	return got, err
}

// ask makes a call and waits for its answer. When ctx ends first the worker is told to give up, and nobody waits.
func (c *Conn) ask(ctx context.Context, kind byte, body any, content ...*os.File) (reply, error) {
	answer := make(chan reply, 1)
	c.mu.Lock()
	if c.calls == nil {
		c.mu.Unlock()
		return reply{}, ErrGone
	}
	id := c.last
	c.last++
	c.calls[id] = answer
	c.mu.Unlock()
	if err := c.send(kind, id, body, content...); err != nil {
		c.forget(id, answer)
		return reply{}, err
	}
	select {
	case r, ok := <-answer:
		if !ok {
			return reply{}, ErrGone
		}
		return r, nil
	case <-ctx.Done():
		c.forget(id, answer)
		// If this fails the worker is gone, and the request with it.
		_ = c.send(kindCancel, id, nil)
		return reply{}, context.Cause(ctx)
	}
}

func (c *Conn) send(kind byte, id uint64, body any, content ...*os.File) error {
	msg, err := encode(kind, id, body)
	if err != nil {
		return err
	}
	fds := make([]int, len(content))
	for i, f := range content {
		fds[i] = int(f.Fd())
	}
	err = c.socket.Send(msg, fds...)
	runtime.KeepAlive(content)
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, os.ErrClosed) {
		return ErrGone
	}
	return err
}

// forget gives up a call, and what came for it meanwhile.
func (c *Conn) forget(id uint64, answer <-chan reply) {
	c.mu.Lock()
	delete(c.calls, id)
	c.mu.Unlock()
	select {
	case r := <-answer:
		packet.CloseAll(r.fds)
	default:
	}
}

// receive hands out what the worker says, until it says no more, or something that cannot be understood.
func (c *Conn) receive() {
	for {
		msg, fds, err := c.socket.Receive()
		if err != nil {
			break
		}
		kind, id, body, err := split(msg)
		if err != nil || len(msg) > maxAnswer {
			packet.CloseAll(fds)
			break
		}
		c.mu.Lock()
		answer := c.calls[id]
		delete(c.calls, id)
		if answer != nil {
			answer <- reply{kind, append([]byte(nil), body...), fds} // the buffer is about to be reused
		}
		c.mu.Unlock()
		if answer == nil { // its caller has left
			packet.CloseAll(fds)
		}
	}
	c.socket.Close()
	c.mu.Lock()
	for _, answer := range c.calls {
		close(answer)
	}
	c.calls = nil
	c.mu.Unlock()
	close(c.gone)
}

// Gone is closed when the worker has ended.
func (c *Conn) Gone() <-chan struct{} { return c.gone }

// Close ends the conversation, and the worker with it.
func (c *Conn) Close() error {
	err := c.socket.Close()
	<-c.gone
	return err
}
