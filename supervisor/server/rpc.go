package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpcreflect"
	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/rpc"
)

// S1's service is served beside the routes, by handlers of net/http, so that whoever calls it has passed what every request
// passes: the admission of his connection, the kernel's word for who he is, [Server.guard], the bounds of what he has under way.
//
//	gRPC, gRPC-Web, JSON ─▶ remote (who, how much, how long) ─▶ connect (frames, codecs) ─▶ sessionService ─▶ Supervisor

// remotes are the handlers by their paths.
func (s *Server) remotes() map[string]http.Handler {
	options := connect.WithHandlerOptions(
		connect.WithCompression("gzip", nil, nil), // as elsewhere on the socket, content comes as it is
		connect.WithCodec(strictProto{}), connect.WithCodec(strictJSON{"json"}), connect.WithCodec(strictJSON{"json; charset=utf-8"}),
	)
	reflector := grpcreflect.NewStaticReflector(rpc.SessionServiceName)
	service, sessions := rpc.NewSessionServiceHandler(sessionService{}, options)
	v1, reflection := grpcreflect.NewHandlerV1(reflector, options)
	v1alpha, early := grpcreflect.NewHandlerV1Alpha(reflector, options)
	return map[string]http.Handler{
		service: s.remote(service, sessions, false),
		v1:      s.remote(v1, reflection, true),
		v1alpha: s.remote(v1alpha, early, true),
	}
}

// remote gives a handler of remote procedures the bounds of every request. One that converses takes messages as long as each
// comes in time; of another the one message does, with all that it needs.
func (s *Server) remote(service string, next http.Handler, converses bool) http.Handler {
	refusals := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call{server: s, w: w, r: r, control: http.NewResponseController(w)}
		refuse := func(err *api.Error) {
			_ = refusals.Write(w, r, remoteError(err))
		}
		var ok bool
		if c.principal, ok = peer(r.Context()); !ok {
			refuse(api.Errorf(api.CodeUnauthenticated, "the connection has no peer"))
			return
		}
		if r.URL.RawQuery != "" {
			refuse(api.Errorf(api.CodeInvalidHeader, "remote procedures have no parameters in the URL"))
			return
		}
		if !c.begin() {
			refuse(errTooMuch)
			return
		}
		defer c.end()
		if t := s.options.Traces; t != nil {
			ctx, end := t.Call(r.Context(), r.Header, strings.Trim(service, "/"))
			defer end()
			r = r.WithContext(ctx)
		}
		in := &arriving{c: c, announced: r.ContentLength, each: converses}
		if in.announced < 0 || in.announced > api.MaxBody {
			in.announced = api.MaxBody
		}
		if !c.weigh(load{bytes: in.announced}) {
			refuse(errTooMuch)
			return
		}
		c.control.SetReadDeadline(time.Now().Add(s.options.BodyTimeout))
		in.ReadCloser = http.MaxBytesReader(w, r.Body, api.MaxBody)
		r = r.WithContext(context.WithValue(r.Context(), arrivingKey{}, in))
		r.Body = in
		next.ServeHTTP(&patientAnswer{ResponseWriter: w, c: c}, r)
	})
}

// arriving is the body of a call of a remote procedure.
type arriving struct {
	io.ReadCloser
	c         *call
	announced int64 // bytes that are counted for it
	read      int64
	each      bool // every part of it may take the time of a body
}

type arrivingKey struct{}

func (a *arriving) Read(p []byte) (int, error) {
	if a.each {
		a.c.control.SetReadDeadline(time.Now().Add(a.c.server.options.BodyTimeout))
	}
	n, err := a.ReadCloser.Read(p)
	a.read += int64(n)
	return n, err
}

// arrived is the call that a procedure is about to carry out: its message is there.
func arrived(ctx context.Context) *call {
	a := ctx.Value(arrivingKey{}).(*arriving)
	a.c.unweigh(load{bytes: a.announced - min(a.read, a.announced)})
	a.c.control.SetReadDeadline(time.Time{}) // the connection may be quiet while the answer is made
	return a.c
}

// patientAnswer gives whoever reads an answer the server's patience for each part of it.
type patientAnswer struct {
	http.ResponseWriter
	c   *call
	err error // the reader is gone
}

func (a *patientAnswer) Write(b []byte) (n int, err error) {
	if a.err == nil {
		a.c.control.SetWriteDeadline(time.Now().Add(a.c.server.options.WriteTimeout))
		n, a.err = a.ResponseWriter.Write(b)
	}
	return n, a.err
}

// Flush is what a stream does behind each message. What goes wrong the next Write says.
func (a *patientAnswer) Flush() {
	if a.err != nil {
		return
	}
	a.c.control.SetWriteDeadline(time.Now().Add(a.c.server.options.WriteTimeout))
	if a.err = a.c.control.Flush(); a.err == nil {
		a.err = a.c.control.SetWriteDeadline(time.Time{})
	}
}

func (a *patientAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// strictProto is the binary form. Fields that this version does not know are refused, as members are that JSON has too many: a
// caller that means something by them must not be told that it was done.
type strictProto struct{}

func (strictProto) Name() string { return "proto" }

func (strictProto) Marshal(v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("bug: %T is no message", v)
	}
	return proto.Marshal(m)
}

func (strictProto) Unmarshal(b []byte, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("bug: %T is no message", v)
	}
	if err := proto.Unmarshal(b, m); err != nil {
		return err
	}
	return unknown(m.ProtoReflect())
}

// unknown refuses fields that a message, or one in it, should not have.
func unknown(m protoreflect.Message) (err error) {
	if left := m.GetUnknown(); len(left) > 0 {
		return fmt.Errorf("%s has %d bytes of fields that are not known here", m.Descriptor().FullName(), len(left))
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() && f.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				err = unknown(v.Message())
				return err == nil
			})
		case f.IsMap() || f.Message() == nil:
		case f.IsList():
			for i := 0; i < v.List().Len() && err == nil; i++ {
				err = unknown(v.List().Get(i).Message())
			}
		default:
			err = unknown(v.Message())
		}
		return err == nil
	})
	return err
}

// strictJSON is the JSON mapping of protobuf, without members that are not known, or there twice. What it writes has no spaces: protojson
// puts them where nobody expects them, which is not the same in two builds.
type strictJSON struct{ name string }

func (j strictJSON) Name() string { return j.name }

func (strictJSON) Marshal(message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("bug: %T is no message", message)
	}
	b, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	v := jsontext.Value(b)
	err = v.Compact()
	return v, err
}

func (strictJSON) Unmarshal(b []byte, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("bug: %T is no message", v)
	}
	if len(b) == 0 {
		return errors.New("the body is not a JSON document")
	}
	return protojson.Unmarshal(b, m)
}

// errorDomain is whose the reasons of errors are.
const errorDomain = "stockade"

// remoteCodes are the codes of gRPC by the status that HTTP would have.
var remoteCodes = map[int]connect.Code{
	http.StatusOK:                    connect.CodeAborted, // it began, and ended as was not meant
	http.StatusBadRequest:            connect.CodeInvalidArgument,
	http.StatusUnauthorized:          connect.CodeUnauthenticated,
	http.StatusForbidden:             connect.CodePermissionDenied,
	http.StatusNotFound:              connect.CodeNotFound,
	http.StatusMethodNotAllowed:      connect.CodeUnimplemented,
	http.StatusConflict:              connect.CodeFailedPrecondition,
	http.StatusGone:                  connect.CodeOutOfRange,
	http.StatusLengthRequired:        connect.CodeInvalidArgument,
	http.StatusRequestEntityTooLarge: connect.CodeResourceExhausted,
	http.StatusUnsupportedMediaType:  connect.CodeInvalidArgument,
	http.StatusUnprocessableEntity:   connect.CodeFailedPrecondition,
	http.StatusTooManyRequests:       connect.CodeResourceExhausted,
	http.StatusInternalServerError:   connect.CodeInternal,
	http.StatusNotImplemented:        connect.CodeUnimplemented,
	http.StatusBadGateway:            connect.CodeInternal,
	http.StatusServiceUnavailable:    connect.CodeUnavailable,
	http.StatusInsufficientStorage:   connect.CodeResourceExhausted,
}

// remoteCode is the code of gRPC for one of ours.
func remoteCode(code api.Code) connect.Code {
	switch code {
	case api.CodeKeyConflict:
		return connect.CodeAlreadyExists
	case api.CodeKeyInFlight:
		return connect.CodeAborted // the same again is right
	}
	if known, ok := remoteCodes[code.Status()]; ok {
		return known
	}
	return connect.CodeInternal
}

// reason is a detail of an error: a stable code, and what it is about.
func reason(e *connect.Error, code api.Code, about map[string]string) {
	for name, value := range about {
		if value == "" {
			delete(about, name)
		}
	}
	detail, err := connect.NewErrorDetail(&errdetails.ErrorInfo{Reason: string(code), Domain: errorDomain, Metadata: about})
	if err != nil {
		panic(err) // it is made of text that has been in JSON
	}
	e.AddDetail(detail)
}

// remoteError is an error that the caller may see.
func remoteError(err *api.Error) *connect.Error {
	e := connect.NewError(remoteCode(err.Code), errors.New(err.Message))
	reason(e, err.Code, nil)
	return e
}

// remoteReceipt is that of an operation that did not take place: with its receipt and, where it was denied, with each reason.
func remoteReceipt(r *api.Receipt) *connect.Error {
	e := connect.NewError(remoteCode(r.ErrorCode), errors.New(r.ErrorMessage))
	if r.Outcome == api.OutcomeDenied { // also with a code of the policy's author's
		e = connect.NewError(connect.CodePermissionDenied, errors.New(r.ErrorMessage))
	}
	reason(e, r.ErrorCode, map[string]string{"receipt_id": r.IntentID, "op": string(r.Op), "outcome": string(r.Outcome)})
	for _, d := range r.Deny {
		reason(e, d.Code, map[string]string{"subject": d.Subject, "message": d.Message})
	}
	return e
}

// failed is what a caller is told of an error, as [call.fail] does.
func (c *call) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil { // nobody is there, or the time is over that he has
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return connect.NewError(connect.CodeDeadlineExceeded, ctx.Err())
		}
		return connect.NewError(connect.CodeCanceled, ctx.Err())
	}
	if e, ok := errors.AsType[*api.Error](err); ok {
		return remoteError(e)
	}
	c.server.options.Log.Error("answer", "method", c.r.Method, "path", c.r.URL.Path, "error", err)
	return remoteError(api.Errorf(api.CodeInternalError, "the supervisor failed; its log says more"))
}
