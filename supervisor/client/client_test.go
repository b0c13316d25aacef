package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// serve is a supervisor that answers everything in one way.
func serve(t *testing.T, answer http.HandlerFunc) *Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "stockade-")
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: answer}
	done := make(chan struct{})
	go func() { srv.Serve(ln); close(done) }()
	t.Cleanup(func() { srv.Close(); <-done; os.RemoveAll(dir) })
	return New(socket)
}

// Whatever a supervisor answers, the caller learns what it was.
func TestAnswers(t *testing.T) {
	for _, row := range []struct {
		name   string
		status int
		body   string
		code   api.Code // of an *api.Error
		says   string   // of another error; "" is none
	}{
		{"receipt", 200, `{"version":1,"intent_id":"i","outcome":"ok"}`, "", ""},
		{"newer receipt", 200, `{"version":2,"intent_id":"i","outcome":"ok","novelty":1}`, "", ""},
		{"denied", 403, `{"intent_id":"i","outcome":"denied"}`, "", ""},
		{"faulted", 502, `{"intent_id":"i","outcome":"faulted"}`, "", ""},
		{"error", 400, `{"error":{"code":"decode_error","message":"m"}}`, api.CodeDecodeError, ""},
		{"something else", 502, `<html>`, "", "502"},
		{"no receipt", 200, `{}`, "", "not a receipt"},
		{"not json", 200, `hello`, "", "decode"},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(row.status)
				io.WriteString(w, row.body)
			})
			r, err := c.Exec(t.Context(), api.Exec{})
			e, isCode := errors.AsType[*api.Error](err)
			switch {
			case row.code != "":
				if !isCode || e.Code != row.code {
					t.Errorf("%v", err)
				}
			case row.says != "":
				if err == nil || isCode || !strings.Contains(err.Error(), row.says) {
					t.Errorf("%v", err)
				}
			case err != nil || r.IntentID != "i":
				t.Errorf("%+v %v", r, err)
			}
		})
	}
}

// A stream that ends without a receipt is an error, never a success.
func TestCutStream(t *testing.T) {
	for name, body := range map[string]string{
		"nothing":     "",
		"no receipt":  "{\"kind\":\"accepted\",\"intent_id\":\"i\"}\n",
		"half a line": "{\"kind\":\"accepted\",\"intent_id\":\"i\"}\n{\"kind\":\"receipt\",\"receipt\":{\"intent_id\":\"i\"",
	} {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", ndjson)
			io.WriteString(w, body)
		})
		c.pause = c.pause[:1]
		_, err := c.ExecStream(t.Context(), api.Exec{}, func(api.Event) error { return nil })
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An unreachable supervisor is an error that names the call, without a URL that nobody
// could visit.
func TestUnreachable(t *testing.T) {
	_, err := New("/nowhere/s").Version(t.Context())
	if err == nil || strings.Contains(err.Error(), "http://") || !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	_, attach := New("/nowhere/s").Attach(t.Context(), "x-1", Seat{})
	_, forward := New("/nowhere/s").Forward(t.Context(), "s-1", 80)
	for op, err := range map[string]error{"attach": attach, "forward": forward} {
		if err == nil || !strings.HasPrefix(err.Error(), op+": ") || !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", op, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := New("/nowhere/s").Version(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Content of every kind arrives whole and with its size announced.
func TestPutBlob(t *testing.T) {
	const text = "the whole content"
	file, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	io.WriteString(file, "not this: "+text)
	file.Seek(int64(len("not this: ")), io.SeekStart)
	pipe, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	go func() { io.WriteString(w, text); w.Close() }()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil || r.ContentLength != int64(len(b)) || string(b) != text && len(b) != 0 {
			t.Errorf("%d bytes announced, %q %v", r.ContentLength, b, err)
		}
		io.WriteString(w, `{"intent_id":"i"}`)
	})
	for name, content := range map[string]io.Reader{
		"string": strings.NewReader(text), "file": file, "pipe": pipe, "plain reader": io.MultiReader(strings.NewReader(text)),
		"empty": strings.NewReader(""), "empty reader": io.MultiReader(),
	} {
		if _, err := c.PutBlob(t.Context(), content, ""); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := file.Stat(); err != nil {
		t.Errorf("the caller's file was closed: %v", err)
	}
}
