package server

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// A format is one way to write events.
type format struct {
	media     string
	greeting  string // what comes before the first event
	keepalive string // what keeps an idle connection from being taken for a dead one
	write     func(w io.Writer, id, kind string, data []byte) error
}

// formats are chosen by the Accept header. Server-sent events say their cursor as id, which
// readers send back as Last-Event-ID; a line has it in the event itself.
var formats = []format{
	{"text/event-stream", "retry: 1000\n\n", ": keepalive\n\n", func(w io.Writer, id, kind string, data []byte) error {
		if id != "" { // an empty one would reset the reader's
			id = "id: " + id + "\n"
		}
		_, err := fmt.Fprintf(w, "%sevent: %s\ndata: %s\n\n", id, kind, data)
		return err
	}},
	{"application/x-ndjson", "", "{\"kind\":\"keepalive\"}\n", func(w io.Writer, _, _ string, data []byte) error {
		_, err := w.Write(append(data, '\n'))
		return err
	}},
}

// events writes a stream of events to one reader. A reader that does not take its
// bytes within the patience of the server is given up, and with it the stream, not what
// the stream is about.
type events struct {
	format   format
	w        http.ResponseWriter
	control  *http.ResponseController
	patience time.Duration
	read     bool   // a stream even before its first event, once a keepalive is due
	leave    func() // called when the reader is gone

	mu    sync.Mutex
	begun bool
	err   error // the reader is gone
	stop  chan struct{}
	done  chan struct{}
}

// newEvents returns a stream that its first event begins. Until then the answer can still be an
// ordinary one, with a status; but who follows what has nothing to say for now, which only a read
// can, shall see a sign of life all the same.
func newEvents(w http.ResponseWriter, f format, read bool, leave func(), o Options) *events {
	e := &events{
		format: f, w: w, control: http.NewResponseController(w), patience: o.WriteTimeout, read: read, leave: leave,
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	go e.keepalive(o.Keepalive)
	return e
}

// send writes one event. After the first error it does nothing but return it.
func (e *events) send(id, kind string, event any) error {
	data, err := api.Encode(event)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.put(func() error { return e.format.write(e.w, id, kind, data) })
}

// event is send of one that knows its cursor and its kind.
func (e *events) event(event api.Event) error { return e.send(event.Cursor, string(event.Kind), event) }

// end ends a stream that may have had no event.
func (e *events) end() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.put(func() error { return nil })
}

// put writes and flushes within the reader's patience. mu is held.
func (e *events) put(write func() error) error {
	if e.err != nil {
		return e.err
	}
	e.control.SetWriteDeadline(time.Now().Add(e.patience))
	if e.err = e.begin(); e.err == nil {
		e.err = write()
	}
	if e.err == nil {
		e.err = e.control.Flush()
	}
	if e.err == nil {
		e.err = e.control.SetWriteDeadline(time.Time{})
	}
	if e.err != nil {
		e.leave()
	}
	return e.err
}

// begin makes the answer a stream. mu is held.
func (e *events) begin() error {
	if e.begun {
		return nil
	}
	e.begun = true
	h := e.w.Header()
	h.Set("Content-Type", e.format.media)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	e.w.WriteHeader(http.StatusOK)
	_, err := io.WriteString(e.w, e.format.greeting)
	return err
}

func (e *events) keepalive(every time.Duration) {
	defer close(e.done)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-e.stop:
			return
		case <-tick.C:
		}
		e.mu.Lock()
		if e.begun || e.read {
			e.put(func() error { _, err := io.WriteString(e.w, e.format.keepalive); return err })
		}
		e.mu.Unlock()
	}
}

// close ends the keepalives and waits for them: from here on the stream is its caller's alone.
func (e *events) close() {
	close(e.stop)
	<-e.done
}
