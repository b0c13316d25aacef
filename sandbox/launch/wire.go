package launch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/stockade-dev/stockade/internal/packet"
	"github.com/stockade-dev/stockade/sandbox"
)

// Daemon and runner talk over a SOCK_SEQPACKET unix socket. The daemon calls; every
// message carries the number of the call that it belongs to.
//
//	daemon                                             runner
//	  │  hello 1 {version}                               │  first; anything else ends the connection
//	  ├─────────────────────────────────────────────────▶│
//	  │◀─────────────────────────── reply 1 {version, host}
//	  │                                                  │
//	  │  sessions n                                      │  what an earlier daemon left
//	  ├─────────────────────────────────────────────────▶│
//	  │◀─────────────────────────────── part n {session} ┤  for each
//	  │◀───────────────────────────────────────── reply n ┤
//	  │                                                  │
//	  │  resolve, open, signal, kill, freeze,            │  any number at a time
//	  │  load, closeStdin, changes, commit, discard,     │
//	  │  foreground, narrow, close n {…}                 │
//	  ├─────────────────────────────────────────────────▶│
//	  │◀───────────────────────── reply n {…} │ failure n {code, msg}
//	  │                                                  │
//	  │  start n {exec} [+ stdin]                        │  a new execution,
//	  │  attach n {session, exec}                        │  or one that an earlier daemon started
//	  ├─────────────────────────────────────────────────▶│
//	  │◀──── reply n {started} + stdout, stderr [, stdin] │ failure n
//	  │◀─────────────────────────────── exited n {result} ┤  once for each reply, after it
//	  │  forget n {session, exec}                        │  not answered: the result is safe elsewhere
//	  ├─────────────────────────────────────────────────▶│
//	  │                                                  │
//	  │  collect n {session, paths}                      │
//	  ├─────────────────────────────────────────────────▶│
//	  │◀──────────────────────── part n {…} + descriptors ┤  as many as the files need
//	  │◀──────────────────────── reply n {…} + descriptors┤
//	  │                                                  │
//	  │  connect n {session, port}                       │  made inside
//	  ├─────────────────────────────────────────────────▶│
//	  │◀────────────────────── reply n {} + socket │ failure n
//	  │                                                  │
//	  │  cancel n                                        │  the caller has left; n is answered all the same
//	  ├─────────────────────────────────────────────────▶│
//	  ╳  end of file, either way                         │  the runner holds what was started for the next daemon
//
// A message is one byte of kind, the call (u64, little-endian), and a JSON body. Bodies that
// do not fit into the socket travel in a sealed memfd (package packet).
const (
	kindHello      kind = 1 + iota // daemon to runner
	kindSessions                   //
	kindResolve                    //
	kindOpen                       //
	kindStart                      //
	kindAttach                     //
	kindForget                     //
	kindCloseStdin                 //
	kindSignal                     //
	kindKill                       //
	kindFreeze                     //
	kindLoad                       //
	kindCollect                    //
	kindChanges                    //
	kindCommit                     //
	kindDiscard                    //
	kindNarrow                     //
	kindForeground                 //
	kindConnect                    //
	kindClose                      //
	kindCancel                     //
	kindReply                      // runner to daemon
	kindFailure                    //
	kindPart                       //
	kindExited                     //
)

type kind byte

// version changes with every change of a message.
const version = 8

// The bodies that are not nouns of package sandbox.
type (
	helloCall  struct{ Version int }
	helloReply struct {
		Version int
		Host    sandbox.Host
	}
	resolveCall struct {
		Caller sandbox.Caller
		Paths  []string
	}
	target struct { // what is meant: a session or an execution
		Session, Exec string
	}
	signalCall struct {
		target
		Signal int
	}
	freezeCall struct {
		target
		Frozen bool
	}
	// startReply comes with stdout, stderr and, if Stdin, the end of stdin that is written.
	startReply struct {
		Started time.Time
		Stdin   bool
	}
	connectCall struct {
		Session string
		Port    uint16
	}
	collectCall struct {
		Session string
		Paths   []string
	}
	space struct { // an overlay, by its inside path
		Session, Target string
	}
	// Names below an overlay are bytes, chosen inside; JSON has text only.
	changesCall struct {
		space
		After []byte
		Limit int
	}
	change struct {
		Path, Link []byte
		Kind, Type string
		Mode       uint32
		Size       int64
	}
	changesReply struct {
		Changes []change
		More    bool
	}
	commitCall struct {
		space
		Paths [][]byte
	}
	// commitReply tells how far a commit came, also one that failed on its way.
	commitReply struct {
		Applied int64
		Left    [][]byte
		Err     *sandbox.Error
	}
	narrowCall struct {
		Session string
		Network sandbox.Network
	}
	narrowReply struct{ Cut int64 }
	// artifact is a sandbox.Artifact without its file. Artifacts with HasFile take the
	// descriptors of their message in order.
	artifact struct {
		Path    string
		Size    int64
		Mode    uint32
		Err     string
		HasFile bool
	}
	none struct{}
)

var (
	errMalformed = errors.New("launch: malformed message")
	errBereft    = &sandbox.Error{Code: sandbox.CodeInternal, Msg: packet.ErrDescriptors.Error()}
)

// options say how bodies are written and read: both ends are built together, so
// whatever one does not know is an error.
var options = json.JoinOptions(
	json.RejectUnknownMembers(true),
	jsonv1.FormatDurationAsNano(true), // time.Duration has no form of its own in JSON
)

// encode returns a message.
func encode(k kind, call uint64, body any) ([]byte, error) {
	b := bytes.NewBuffer(make([]byte, 0, 1024))
	b.WriteByte(byte(k))
	b.Write(binary.LittleEndian.AppendUint64(nil, call))
	if err := json.MarshalWrite(b, body, options); err != nil {
		return nil, fmt.Errorf("launch: encode: %w", err)
	}
	return b.Bytes(), nil
}

// split takes a message apart. The body aliases msg.
func split(msg []byte) (k kind, call uint64, body []byte, err error) {
	if len(msg) < 9 {
		return 0, 0, nil, errMalformed
	}
	return kind(msg[0]), binary.LittleEndian.Uint64(msg[1:9]), msg[9:], nil
}

// decode reads a body.
func decode(body []byte, into any) error {
	if err := json.Unmarshal(body, into, options); err != nil {
		return fmt.Errorf("launch: decode: %w", err)
	}
	return nil
}

// each converts a list of names.
func each[To, From ~string | ~[]byte](list []From) []To {
	var out []To
	for _, name := range list {
		out = append(out, To(name))
	}
	return out
}
