package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/stockade-dev/stockade/supervisor/server"
	"github.com/stockade-dev/stockade/supervisor/telemetry"
)

// observed is what is told of the supervisor beside its socket.
type observed struct {
	secrets telemetry.Redactor
	metrics *telemetry.Metrics
	traces  *telemetry.Traces
	scrapes *http.Server // nil when nobody may
	log     *slog.Logger
	level   slog.LevelVar
	closing sync.Once
}

// observe opens the log, and what else the flags ask for. Whoever calls it closes it.
func (c *config) observe(stderr io.Writer) (*observed, *slog.Logger, error) {
	o := &observed{metrics: telemetry.New()}
	o.level.Set(c.logLevel)
	log, err := telemetry.NewLog(stderr, &o.level, c.logFormat, &o.secrets)
	if err != nil {
		return nil, nil, err
	}
	o.log = log
	if o.traces, err = telemetry.OpenTraces(c.traces, version, log); err != nil {
		return nil, nil, err
	}
	if c.metrics != "" {
		ln, err := listenForScrapes(c.metrics)
		if err != nil {
			o.close()
			return nil, nil, fmt.Errorf("metrics: %w", err)
		}
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", o.metrics.Handler())
		o.scrapes = &http.Server{
			Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: 20 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
			ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		}
		go func() {
			if err := o.scrapes.Serve(ln); err != http.ErrServerClosed {
				log.Error("metrics are not served any more", "error", err)
			}
		}()
	}
	return o, log, nil
}

// listenForScrapes makes the socket for "unix:PATH", and otherwise listens on a port that only this machine reaches.
func listenForScrapes(where string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(where, "unix:"); ok {
		return server.Listen(path)
	}
	at, err := netip.ParseAddrPort(where)
	if err != nil {
		return nil, fmt.Errorf("%q: want unix:PATH, or an address and a port: %w", where, err)
	}
	if !at.Addr().IsLoopback() {
		return nil, fmt.Errorf("%s is no address of the loopback: whoever reaches it would read them", at.Addr())
	}
	return net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
}

// flushLimit is how long the last spans may take to be sent.
const flushLimit = 2 * time.Second

// close ends it, once.
func (o *observed) close() {
	o.closing.Do(func() {
		if o.scrapes != nil {
			o.scrapes.Close()
		}
		ctx, cancel := context.WithTimeout(context.Background(), flushLimit)
		defer cancel()
		if err := o.traces.Close(ctx); err != nil {
			o.log.Warn("the last spans are lost", "error", err)
		}
	})
}
