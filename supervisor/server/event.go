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
	keepalive string // what keeps an idle connection from being taken for a dead one
	write     func(w io.Writer, kind string, data []byte) error
}

// formats are chosen by the Accept header.
var formats = []format{
	{"text/event-stream", ": keepalive\n\n", func(w io.Writer, kind string, data []byte) error {
		_, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, data)
		return err
	}},
	{"application/x-ndjson", "{\"kind\":\"keepalive\"}\n", func(w io.Writer, _ string, data []byte) error {
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

	mu    sync.Mutex
	begun bool
	err   error // the reader is gone
	stop  chan struct{}
	done  chan struct{}
}

func newEvents(w http.ResponseWriter, f format, o Options) *events {
	e := &events{
		format: f, w: w, control: http.NewResponseController(w), patience: o.WriteTimeout,
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	go e.keepalive(o.Keepalive)
	return e
}

// send writes one event. After the first error it does nothing but return it.
func (e *events) send(event api.Event) error {
	data, err := api.Encode(event)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.begun {
		e.begun = true
		h := e.w.Header()
		h.Set("Content-Type", e.format.media)
		h.Set("X-Content-Type-Options", "nosniff")
		e.w.WriteHeader(http.StatusOK)
	}
	return e.put(func() error { return e.format.write(e.w, event.Kind, data) })
}

// put writes and flushes within the reader's patience. mu is held.
func (e *events) put(write func() error) error {
	if e.err != nil {
		return e.err
	}
	e.control.SetWriteDeadline(time.Now().Add(e.patience))
	if e.err = write(); e.err == nil {
		e.err = e.control.Flush()
	}
	if e.err == nil {
		e.err = e.control.SetWriteDeadline(time.Time{})
	}
	return e.err
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
		if e.begun {
			e.put(func() error { _, err := io.WriteString(e.w, e.format.keepalive); return err })
		}
		e.mu.Unlock()
	}
}

// started reports whether anything was written; until then the answer can still be an
// ordinary one.
func (e *events) started() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.begun
}

// close ends the keepalives and waits for them.
func (e *events) close() {
	close(e.stop)
	<-e.done
}
