package main

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// answerWithin is how long what was asked before the end of stdin may take to be answered.
const answerWithin = 5 * time.Second

// stdio is a transport whose end of input waits for the answers to what came before it. The SDK's own cancels what is being done as
// soon as its input ends, and `stockade mcp <requests` would answer some of them, or none.
type stdio struct {
	in  io.Reader
	out io.Writer
}

func (s stdio) Connect(ctx context.Context) (sdk.Connection, error) {
	c, err := (&sdk.IOTransport{Reader: io.NopCloser(s.in), Writer: unclosed{s.out}}).Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &answering{Connection: c, told: ctx.Done(), answered: make(chan struct{}, 1)}, nil
}

// answering counts what was asked and not answered.
type answering struct {
	sdk.Connection
	told     <-chan struct{} // to end
	open     atomic.Int64
	answered chan struct{} // one of them, or more
}

func (a *answering) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := a.Connection.Read(ctx)
	if r, ok := m.(*jsonrpc.Request); ok && r.IsCall() {
		a.open.Add(1)
	}
	if errors.Is(err, io.EOF) {
		a.settle()
	}
	return m, err
}

func (a *answering) Write(ctx context.Context, m jsonrpc.Message) error {
	err := a.Connection.Write(ctx, m)
	if _, ok := m.(*jsonrpc.Response); ok {
		a.open.Add(-1)
		select {
		case a.answered <- struct{}{}:
		default:
		}
	}
	return err
}

// settle waits until all is answered, or for as long as that may take.
func (a *answering) settle() {
	timeout := time.After(answerWithin)
	for a.open.Load() > 0 {
		select {
		case <-a.answered:
		case <-timeout:
			return
		case <-a.told:
			return
		}
	}
}

// unclosed leaves our stdout open.
type unclosed struct{ io.Writer }

func (unclosed) Close() error { return nil }
