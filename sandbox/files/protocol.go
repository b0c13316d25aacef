// Package files is the conversation between the supervisor and the worker that serves the file tools of a session. The
// worker is a mode of stockade-init, started in the session as a command is: with its identity, its limits, its filter and its
// Landlock, in a group of its own below S/x. The supervisor reaches it over a socket that was given to it as its standard
// input; the runner passes the socket on and takes no part.
//
// It promises that a request is answered once, or that everybody who waits is told that the worker is gone; that large documents
// and contents travel in sealed memory files; and that neither end believes the other's descriptors before it has looked at
// the seals. What the worker says of files is believed as the output of a command is: it lives inside.
//
// The worker's end is linked into stockade-init: standard library and x/sys only.
package files

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/stockade-dev/stockade/internal/memfile"
	"github.com/stockade-dev/stockade/sandbox/file"
)

// The two talk over a SOCK_SEQPACKET socket pair. Every message carries the call that it belongs to.
//
//	supervisor                                  worker
//	  │  begin 0 {version, workdir, caps, …}      │  once, first; with the operator's ripgrep, if there is one
//	  ├──────────────────────────────────────────▶│
//	  │◀───────────────────── ready 0 │ failed 0 ─┤
//	  │                                           │
//	  │  look n {request} + contents of blobs     │  any number at a time
//	  │  do n   {request} + contents of blobs     │
//	  ├──────────────────────────────────────────▶│
//	  │◀─────────────────────────────── seen n {} ┤
//	  │◀────────────────── done n {} [+ content] ─┤
//	  │  mend n {request} + contents of blobs     │  with which an earlier worker was lost
//	  ├──────────────────────────────────────────▶│
//	  │◀─────────────────────────────── mended n ─┤
//	  │  cancel n                                 │  n is answered all the same
//	  ├──────────────────────────────────────────▶│
//	  ╳  end of file                              │  the worker ends
//
// A message is one byte of kind, the call (u64, little-endian), and a JSON body. A body that does not fit into the socket travels
// in a sealed memory file (package packet).
const (
	kindBegin  = 1 + iota // supervisor to worker
	kindLook              //
	kindDo                //
	kindMend              //
	kindCancel            //
	kindReady             // worker to supervisor
	kindFailed            //
	kindSeen              //
	kindDone              //
	kindMended            //
)

// version is the first member of begin. A supervisor that is replaced starts workers of its own, but by the
// init that the session has.
const version = 1

// Config is what a worker serves with, from its first request to its end.
type Config struct {
	Workdir    string    `json:"workdir"` // absolute, clean inside path
	Caps       file.Caps `json:"caps"`
	WholeBytes int64     `json:"whole_bytes,omitzero"` // ceilings of the session's size; 0 is the tools' own
	ReadBytes  int64     `json:"read_bytes,omitzero"`
	WriteBytes int64     `json:"write_bytes,omitzero"`
	PatchBytes int64     `json:"patch_bytes,omitzero"`
	TextBytes  int64     `json:"text_bytes,omitzero"` // of a search or a listing
	HeapBytes  int64     `json:"heap_bytes,omitzero"` // from which on the worker collects more often; no ceiling
}

type (
	begin struct {
		Version int `json:"version"`
		Config
	}
	failure struct {
		Message string `json:"message"`
	}
	// ask names the blobs whose contents come with it, in order.
	ask struct {
		Request file.Request `json:"request"`
		Blobs   []string     `json:"blobs,omitempty"`
	}
	seen struct {
		Sight file.Sight  `json:"sight"`
		Fault *file.Fault `json:"fault,omitzero"`
	}
	done struct {
		Result file.Result `json:"result"`
	}
)

// maxAnswer bounds what the worker says of one request: it becomes part of a record.
const maxAnswer = 4 << 20

// maxContent bounds what comes with a reply: it is what a tool reads at the most. A memory file of zeros costs the worker nothing,
// and would cost its caller a disk.
const maxContent = 1 << 30

var errMalformed = errors.New("files: malformed message")

func encode(kind byte, call uint64, body any) ([]byte, error) {
	b := bytes.NewBuffer(make([]byte, 0, 1024))
	b.WriteByte(kind)
	b.Write(binary.LittleEndian.AppendUint64(nil, call))
	if body == nil {
		return b.Bytes(), nil
	}
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(body); err != nil {
		return nil, fmt.Errorf("files: encode: %w", err)
	}
	return b.Bytes(), nil
}

// split takes a message apart. The body aliases msg.
func split(msg []byte) (kind byte, call uint64, body []byte, err error) {
	if len(msg) < 9 {
		return 0, 0, nil, errMalformed
	}
	return msg[0], binary.LittleEndian.Uint64(msg[1:9]), msg[9:], nil
}

// decode reads a body, all of it. Both ends are built together, or from one source: what one does not know is an error.
func decode(body []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("files: decode: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return errMalformed
	}
	return nil
}

// sealed is the content of a memory file that its writer cannot change any more. It owns fd.
func sealed(fd int) (*os.File, int64, error) {
	f := os.NewFile(uintptr(fd), "content")
	size, err := memfile.Size(fd)
	if err != nil {
		f.Close()
		return nil, 0, fmt.Errorf("files: descriptor: %w", err)
	}
	return f, size, nil
}
