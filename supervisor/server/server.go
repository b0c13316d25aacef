package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/telemetry"
	"github.com/stockade-dev/stockade/supervisor/tools"
)

// Options of a Server. The zero value is ready for use.
type Options struct {
	Log            *slog.Logger      // nil discards
	Traces         *telemetry.Traces // nil makes no spans
	HeaderTimeout  time.Duration     // for the whole header; 0 means 10 s
	BodyTimeout    time.Duration     // for a JSON body, and for each part of a blob; 0 means 30 s
	WriteTimeout   time.Duration     // for each part of an answer; 0 means 30 s
	IdleTimeout    time.Duration     // between two requests of a connection; 0 means 2 min
	Keepalive      time.Duration     // between two signs of life in a stream; 0 means 15 s
	Conns          int               // connections at once, and never more than half of the descriptors; 0 means 4096
	ConnsPerUser   int               // of one uid; 0 means 1024
	Requests       int               // of one uid under way at once, streams included; 0 means 1024
	BodyBytes      int64             // of their JSON bodies, and of the answers to reads until they are taken; 0 means 128 MiB
	MaxHeaderBytes int               // 0 means 64 KiB
	MaxBlobBytes   int64             // of one upload; 0 means 4 GiB
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&o.HeaderTimeout, 10 * time.Second}, {&o.BodyTimeout, 30 * time.Second}, {&o.WriteTimeout, 30 * time.Second},
		{&o.IdleTimeout, 2 * time.Minute}, {&o.Keepalive, 15 * time.Second},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if o.Conns == 0 {
		o.Conns = 4096
	}
	if o.ConnsPerUser == 0 {
		o.ConnsPerUser = 1024
	}
	if o.Requests == 0 {
		o.Requests = 1024
	}
	if o.BodyBytes == 0 {
		o.BodyBytes = 128 << 20
	}
	if o.MaxHeaderBytes == 0 {
		o.MaxHeaderBytes = 64 << 10
	}
	if o.MaxBlobBytes == 0 {
		o.MaxBlobBytes = 4 << 30
	}
	return o
}

// Server serves one supervisor.
type Server struct {
	sup     Supervisor
	options Options
	under   *underway
	named   map[api.Op]func(*call, *api.Request)
	desk    tools.Desk
	mux     *http.ServeMux
	http    http.Server
}

// New returns a server that is not serving yet.
func New(sup Supervisor, options Options) (*Server, error) {
	s := &Server{sup: sup, options: options.withDefaults(), named: named(), mux: http.NewServeMux()}
	s.under = &underway{requests: s.options.Requests, bytes: s.options.BodyBytes, held: map[uint32]load{}}
	paths := map[string]map[string]route{}
	for _, r := range routes() {
		if err := r.check(); err != nil {
			return nil, err
		}
		if paths[r.path] == nil {
			paths[r.path] = map[string]route{}
		}
		paths[r.path][r.method] = r
	}
	s.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		writeError(w, api.Errorf(api.CodeUnknownMethod, "there is no such route"))
	})
	for p, verbs := range paths {
		s.mux.Handle(p, s.verbs(verbs))
	}
	for p, h := range s.remotes() {
		s.mux.Handle(p, h)
	}
	s.http = http.Server{
		Handler:           s.guard(s.mux),
		ReadHeaderTimeout: s.options.HeaderTimeout,
		IdleTimeout:       s.options.IdleTimeout,
		MaxHeaderBytes:    s.options.MaxHeaderBytes,
		ConnContext:       withPeer,
		ErrorLog:          slog.NewLogLogger(s.options.Log.Handler(), slog.LevelDebug),
		Protocols:         new(http.Protocols),
	}
	s.http.Protocols.SetHTTP1(true)
	s.http.Protocols.SetUnencryptedHTTP2(true)
	return s, nil
}

// Serve accepts connections of a listener that [Listen] made, until Shutdown.
func (s *Server) Serve(ln net.Listener) error {
	bounded, err := admit(ln, s.options)
	if err != nil {
		return fmt.Errorf("serve %s: %w", ln.Addr(), err)
	}
	if err := s.http.Serve(bounded); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", ln.Addr(), err)
	}
	return nil
}

// Shutdown stops accepting and waits for the answers that are under way. When ctx ends
// first, it closes what is left and returns the context's error.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		s.http.Close()
	}
	return err
}

// call is one HTTP request under way.
type call struct {
	server    *Server
	row       route
	w         http.ResponseWriter
	r         *http.Request
	principal api.Principal
	query     url.Values
	control   *http.ResponseController
	load      load // that is counted for it
}

// guard is what every request passes, whatever its route.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := &tracked{ResponseWriter: w}
		defer s.recover(answer, r)
		if err := acceptable(r); err != nil {
			answer.Header().Set("Connection", "close")
			writeError(answer, err)
			return
		}
		next.ServeHTTP(answer, r)
	})
}

// acceptable refuses requests that an honest client of a unix socket does not make:
// those that a browser or a proxy was tricked into (T163), and those whose meaning
// depends on who reads them.
func acceptable(r *http.Request) *api.Error {
	host, _, _ := strings.Cut(r.Host, ":")
	switch {
	case r.URL.IsAbs() || r.Method == http.MethodConnect:
		return api.Errorf(api.CodeInvalidHeader, "this is not a proxy: the target of a request is a path")
	case host != "" && host != "localhost" && host != "stockade":
		return api.Errorf(api.CodeInvalidHeader, "host is neither localhost nor stockade")
	case len(r.Header["Origin"]) > 0:
		return api.Errorf(api.CodeInvalidHeader, "requests of web pages are refused")
	case len(r.Header["Content-Encoding"]) > 0:
		return api.Errorf(api.CodeUnsupportedMediaType, "encoded bodies are refused; send the content as it is")
	case path.Clean(r.URL.Path) != r.URL.Path || r.URL.RawPath != "" && r.URL.EscapedPath() != r.URL.RawPath:
		return api.Errorf(api.CodeUnknownMethod, "there is no such route")
	}
	return nil
}

// verbs serves the routes of one path.
func (s *Server) verbs(byMethod map[string]route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		row, ok := byMethod[r.Method]
		if !ok {
			allowed := strings.Join(slices.Sorted(maps.Keys(byMethod)), ", ")
			w.Header().Set("Allow", allowed)
			writeError(w, api.Errorf(api.CodeMethodNotAllowed, "the route takes %s", allowed))
			return
		}
		principal, ok := peer(r.Context())
		if !ok {
			writeError(w, api.Errorf(api.CodeUnauthenticated, "the connection has no peer"))
			return
		}
		query, err := parseQuery(r.URL, row.query)
		if err != nil {
			writeError(w, err)
			return
		}
		c := &call{server: s, row: row, w: w, r: r, principal: principal, query: query, control: http.NewResponseController(w)}
		if !c.begin() {
			writeError(w, errTooMuch)
			return
		}
		defer c.end()
		if t := s.options.Traces; t != nil {
			name := string(row.op)
			if row.op == public || row.op == derived {
				name = row.path
			}
			ctx, end := t.Call(r.Context(), r.Header, name)
			defer end()
			c.r = r.WithContext(ctx)
		}
		row.serve(c)
	})
}

// recover turns a panic of a handler into an answer, so that the daemon lives (T167).
func (s *Server) recover(w *tracked, r *http.Request) {
	cause := recover()
	switch cause {
	case nil:
		return
	case http.ErrAbortHandler:
		panic(cause) // net/http breaks the connection off; returning would end the answer as if it were whole
	}
	s.options.Log.Error("panic in a handler", "method", r.Method, "path", r.URL.Path, "cause", cause, "stack", string(debug.Stack()))
	if w.begun {
		panic(http.ErrAbortHandler) // the reader must not take the rest for the end
	}
	writeError(w, api.Errorf(api.CodeInternalError, "the supervisor failed; its log says more"))
}

// tracked knows whether an answer has begun.
type tracked struct {
	http.ResponseWriter
	begun bool
}

func (t *tracked) WriteHeader(status int) {
	t.begun = true
	t.ResponseWriter.WriteHeader(status)
}

func (t *tracked) Write(p []byte) (int, error) {
	t.begun = true
	return t.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the connection.
func (t *tracked) Unwrap() http.ResponseWriter { return t.ResponseWriter }
