package files

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/memfile"
	"github.com/stockade-dev/stockade/internal/packet"
	"github.com/stockade-dev/stockade/sandbox/file"
)

// Tools carry requests out.
type Tools interface {
	Do(context.Context, *file.Request) *file.Result
	Look(*file.Request) (file.Sight, *file.Fault)
	Mend(*file.Request)
}

// Store takes contents that do not fit into a result, and has those that come with a request.
type Store struct {
	mu    sync.Mutex
	taken map[string][]*os.File // by name: put, and not sent yet
	given map[string][]content  // by name: of requests under way
}

type content struct {
	file *os.File
	size int64
}

func newStore() *Store { return &Store{taken: map[string][]*os.File{}, given: map[string][]content{}} }

// Put takes content and names it.
func (s *Store) Put(r io.Reader) (ref string, size int64, err error) {
	sum := sha256.New()
	f, size, err := memfile.Of("content", io.TeeReader(r, sum))
	if err != nil {
		return "", 0, err
	}
	ref = "sha256:" + hex.EncodeToString(sum.Sum(nil))
	s.mu.Lock()
	s.taken[ref] = append(s.taken[ref], f)
	s.mu.Unlock()
	return ref, size, nil
}

// take gives a content that was put to whoever sends and closes it.
func (s *Store) take(ref string) *os.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.taken[ref]
	if len(list) == 0 {
		return nil
	}
	if s.taken[ref] = list[1:]; len(list) == 1 {
		delete(s.taken, ref)
	}
	return list[0]
}

// Get gives a content that came with a request under way.
func (s *Store) Get(ref string) (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if list := s.given[ref]; len(list) > 0 {
		return io.NopCloser(io.NewSectionReader(list[0].file, 0, list[0].size)), nil
	}
	return nil, os.ErrNotExist
}

// give has contents for as long as a request is under way.
func (s *Store) give(refs []string, fds []int) (over func(), err error) {
	var all []content
	for _, fd := range fds {
		f, size, err := sealed(fd)
		if err != nil {
			return func() {}, err
		}
		all = append(all, content{f, size})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, ref := range refs {
		s.given[ref] = append(s.given[ref], all[i])
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i, ref := range refs {
			var rest []content
			for _, c := range s.given[ref] {
				if c != all[i] {
					rest = append(rest, c)
				}
			}
			if s.given[ref] = rest; rest == nil {
				delete(s.given, ref)
			}
			all[i].file.Close()
		}
	}, nil
}

// How many requests a worker carries out at a time: each may hold a thread, which the session's pids pay for, and a whole file. Looks
// are short, and policy waits for them: they do not stand in line behind long searches.
const (
	atOnce      = 4
	looksAtOnce = 2
)

// giveUpAfter is how long a request may take that its caller has given up. What waits for a file system that does not answer (FUSE, NFS)
// cannot be called back, and keeps a turn: the worker ends instead, with what else is under way, and the next request starts another.
const giveUpAfter = 5 * time.Second

// server is the worker's end.
type server struct {
	fd    int
	store *Store
	tools Tools
	turns chan struct{}
	looks chan struct{}

	mu      sync.Mutex
	cancels map[uint64]context.CancelFunc // of requests under way or waiting
	stuck   bool                          // one of them does not end
	under   sync.WaitGroup
}

// Opener makes the tools that a worker serves. program is the ripgrep that it was given, and its to close; nil is none.
type Opener func(c Config, program *os.File, store *Store) (Tools, error)

// Serve is the life of a worker: it answers on the socket until the supervisor closes it, and returns the exit status.
func Serve(fd int, open Opener) int {
	s := &server{fd: fd, store: newStore(), turns: make(chan struct{}, atOnce), looks: make(chan struct{}, looksAtOnce), cancels: map[uint64]context.CancelFunc{}}
	buf := new(packet.Buffer)
	for first := true; ; first = false {
		msg, fds, err := buf.Receive(fd)
		if err == io.EOF {
			return s.end(0)
		}
		if err != nil {
			return s.end(1)
		}
		kind, call, body, err := split(msg)
		if err == nil && first != (kind == kindBegin) {
			err = errMalformed
		}
		if err == nil {
			err = s.message(kind, call, body, fds, open)
		} else {
			packet.CloseAll(fds)
		}
		if err != nil {
			return s.end(1)
		}
	}
}

// end gives up what is under way, and does not wait for what cannot be. A change is whole or has not happened.
func (s *server) end(status int) int {
	s.mu.Lock()
	for _, cancel := range s.cancels {
		cancel()
	}
	stuck := s.stuck
	s.mu.Unlock()
	if stuck {
		return 1
	}
	ended := make(chan struct{})
	go func() {
		s.under.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return status
	case <-time.After(giveUpAfter):
		return 1
	}
}

// expect has the worker end if a request that was given up is still under way after giveUpAfter. The socket goes first: the process may
// be there for as long as the file system is silent, and is not to be asked again.
func (s *server) expect(call uint64) {
	time.AfterFunc(giveUpAfter, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, under := s.cancels[call]; under {
			s.stuck = true
			_ = unix.Shutdown(s.fd, unix.SHUT_RDWR) // it fails when there is nobody any more, whose end the loop has seen
		}
	})
}

// message owns fds. An error ends the worker.
func (s *server) message(kind byte, call uint64, body []byte, fds []int, open Opener) (err error) {
	switch kind {
	case kindBegin:
		var b begin
		if err := decode(body, &b); err != nil || len(fds) > 1 {
			packet.CloseAll(fds)
			return cmp.Or(err, errMalformed)
		}
		if b.Version != version {
			packet.CloseAll(fds)
			return s.send(kindFailed, call, failure{"it speaks another version"}, nil)
		}
		var program *os.File
		if len(fds) == 1 {
			program = os.NewFile(uintptr(fds[0]), "ripgrep")
		}
		if s.tools, err = open(b.Config, program, s.store); err != nil {
			return s.send(kindFailed, call, failure{err.Error()}, nil)
		}
		return s.send(kindReady, call, struct{}{}, nil)
	case kindLook, kindDo, kindMend:
		var a ask
		err := decode(body, &a)
		if err == nil && (s.tools == nil || len(a.Blobs) != len(fds)) {
			err = errMalformed
		}
		if err != nil {
			packet.CloseAll(fds)
			return err
		}
		over, err := s.store.give(a.Blobs, fds)
		if err != nil {
			return err
		}
		over = sync.OnceFunc(over)
		ctx, cancel := context.WithCancel(context.Background())
		s.mu.Lock()
		s.cancels[call] = cancel
		s.mu.Unlock()
		s.under.Go(func() {
			defer over()
			defer func() {
				cancel()
				s.mu.Lock()
				delete(s.cancels, call)
				s.mu.Unlock()
			}()
			turns := s.turns
			if kind == kindLook {
				turns = s.looks
			}
			select {
			case turns <- struct{}{}:
				defer func() { <-turns }()
				s.serve(ctx, kind, call, &a.Request, over)
			case <-ctx.Done(): // its caller has not waited either
			}
		})
		return nil
	case kindCancel:
		packet.CloseAll(fds)
		s.mu.Lock()
		defer s.mu.Unlock()
		if cancel := s.cancels[call]; cancel != nil {
			cancel()
			s.expect(call)
		}
		return nil
	}
	packet.CloseAll(fds)
	return errMalformed
}

// serve carries one request out, lets go of what came with it, and answers: the next request finds nothing of it. That nobody is there any more to be answered, the loop learns by itself.
func (s *server) serve(ctx context.Context, kind byte, call uint64, r *file.Request, over func()) {
	if kind == kindLook {
		sight, fault := s.tools.Look(r)
		over()
		if s.send(kindSeen, call, seen{sight, fault}, nil) != nil {
			_ = s.send(kindSeen, call, seen{Fault: &tooLong}, nil)
		}
		return
	}
	if kind == kindMend {
		s.tools.Mend(r)
		_ = s.send(kindMended, call, struct{}{}, nil)
		return
	}
	res := s.tools.Do(ctx, r)
	over()
	if res == nil { // it was validated before it came here
		res = &file.Result{Op: r.Op}
	}
	var stored *os.File
	if b := res.Blob(); b != nil {
		stored = s.store.take(b.BlobRef)
		defer stored.Close()
	}
	if s.send(kindDone, call, done{*res}, stored) != nil {
		res = file.Empty(r.Op)
		res.Outcome().Fail(tooLong.Status, tooLong.Code, tooLong.Message)
		_ = s.send(kindDone, call, done{*res}, nil)
	}
}

// tooLong stands for an answer that cannot be sent. Tools keep theirs short; this is for who waits if they do not.
var tooLong = file.Fault{Status: file.Error, Code: file.CodeIOError, Message: "it was done, but what came of it cannot be told: the answer is too long"}

func (s *server) send(kind byte, call uint64, body any, stored *os.File) error {
	msg, err := encode(kind, call, body)
	if err != nil {
		return err
	}
	var fds []int
	if stored != nil {
		fds = append(fds, int(stored.Fd()))
	}
	if len(msg) > maxAnswer {
		return errMalformed
	}
	err = packet.Send(s.fd, msg, fds...)
	if err == unix.EPIPE || err == unix.ECONNRESET {
		return nil // the loop comes to the end of the socket
	}
	return err
}
