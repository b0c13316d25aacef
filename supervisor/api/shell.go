package api

// Terminal has an execution run on a terminal of its own (host.shell.open).
type Terminal struct {
	Cols int `json:"cols,omitzero"` // 0 means 80
	Rows int `json:"rows,omitzero"` // 0 means 24

	// What kind it is, for TERM: a name of terminfo's. "" leaves that to the environment, and otherwise it is xterm-256color.
	Term string `json:"term,omitempty"`
}

// The terminal that nobody has said anything of, and the shell.
const (
	defaultCols = 80
	defaultRows = 24
	maxTerminal = 4096
)

// DefaultShell is what host.shell.open starts when its argv is absent.
var DefaultShell = []string{"/bin/bash", "--login"}

// asShell makes an execution that of a shell: what its caller left out is part of what is judged and recorded.
func (x *Exec) asShell() {
	if len(x.Argv) == 0 {
		x.Argv = append([]string(nil), DefaultShell...)
	}
	t := Terminal{Cols: defaultCols, Rows: defaultRows}
	if x.Terminal != nil {
		t = *x.Terminal
		if t.Cols == 0 {
			t.Cols = defaultCols
		}
		if t.Rows == 0 {
			t.Rows = defaultRows
		}
	}
	x.Terminal = &t
	x.StdinOpen = true
}

// ShellInput types into a shell (host.shell.input): all of Data, then the actions in their order, and nobody else's
// between them.
type ShellInput struct {
	ProcessRef
	InputID  string        `json:"input_id,omitempty"` // the same again is typed once: the answer says duplicate
	Data     *Stdin        `json:"data,omitzero"`      // inline_text, inline_bytes or secret_text; any bytes, as keys send them
	Actions  []ShellAction `json:"actions,omitempty"`
	Takeover bool          `json:"takeover,omitzero"` // also where somebody is attached who types: he is made an observer
	Scope    Scope         `json:"scope,omitzero"`
}

// ShellAction is what a hand at a terminal does beside typing.
type ShellAction struct {
	Type ShellActionType `json:"type"`
	Cols int             `json:"cols,omitzero"` // of RESIZE
	Rows int             `json:"rows,omitzero"`
}

// ShellActionType is one of a closed list.
type ShellActionType string

// The actions (C8). The first two are bytes, of which the terminal makes a signal, or an end of file, where it is in the mode
// for it; the signals reach whoever is in the foreground, whatever the mode.
const (
	ActionCtrlC   ShellActionType = "CTRL_C"
	ActionCtrlD   ShellActionType = "CTRL_D"
	ActionSIGINT  ShellActionType = "SIGINT"
	ActionSIGTERM ShellActionType = "SIGTERM"
	ActionSIGKILL ShellActionType = "SIGKILL"
	ActionResize  ShellActionType = "RESIZE"
)

// ShellResize changes the size of a shell's terminal (host.shell.resize).
type ShellResize struct {
	ProcessRef
	Cols  int   `json:"cols"`
	Rows  int   `json:"rows"`
	Scope Scope `json:"scope,omitzero"`
}

// ShellClose ends a shell (host.shell.close): graceful hangs up and kills what is left after the grace, force kills at once.
type ShellClose struct {
	ProcessRef
	Mode    string `json:"mode,omitempty"`            // "graceful" (default) or "force"
	GraceNS *int64 `json:"grace_timeout_ns,omitzero"` // absent means the default
	Scope   Scope  `json:"scope,omitzero"`
}

// ShellAttach sits down at a shell and types (host.shell.attach): one at a time. What is typed is in no record of its own; the
// receipt says how much it was, with its digest.
type ShellAttach struct {
	ProcessRef
	Takeover bool  `json:"takeover,omitzero"` // where somebody is attached who types: he is made an observer
	Cols     int   `json:"cols,omitzero"`     // the size of the terminal from here on; 0 leaves it
	Rows     int   `json:"rows,omitzero"`
	Scope    Scope `json:"scope,omitzero"`
}

// ShellRun has a shell that waits at its prompt run one command, and waits for its end (host.shell.run).
type ShellRun struct {
	ProcessRef
	InputID   string `json:"input_id,omitempty"`  // the same again is run once: the answer says duplicate
	Command   string `json:"command"`             // of any number of lines
	TimeoutNS int64  `json:"timeout_ns,omitzero"` // after which it is interrupted, as by CTRL_C; 0 means 10 minutes
	Scope     Scope  `json:"scope,omitzero"`
}

// ShellState is where a shell is (S1).
type ShellState string

// The states.
const (
	ShellUnknown ShellState = "UNKNOWN"
	ShellRunning ShellState = "RUNNING" // it lives; whether it waits for a command is not known
	ShellBusy    ShellState = "BUSY"    // a command runs, or was typed
	ShellIdle    ShellState = "IDLE"    // its prompt is there
	ShellClosing ShellState = "CLOSING"
	ShellClosed  ShellState = "CLOSED" // it ended because it was to, or of itself
	ShellError   ShellState = "ERROR"  // it was killed, or lost, and nobody had closed it
)

// Number is that of the state in S1's enumeration.
func (s ShellState) Number() int {
	for i, known := range []ShellState{ShellUnknown, ShellRunning, ShellBusy, ShellIdle, ShellClosing, ShellClosed, ShellError} {
		if s == known {
			return i
		}
	}
	return 0
}

// Alive reports whether the shell takes input.
func (s ShellState) Alive() bool { return s == ShellRunning || s == ShellBusy || s == ShellIdle }

// Shell is a shell as get shows it.
type Shell struct {
	Process
	Status       ShellState     `json:"status"`
	StatusNumber int            `json:"status_number"`
	Alive        bool           `json:"alive"`
	Cols         int            `json:"cols"`
	Rows         int            `json:"rows"`
	Prompt       *ShellPrompt   `json:"prompt,omitzero"`    // the last line, if it is one
	Command      *ShellCommand  `json:"command,omitzero"`   // that runs
	Commands     []ShellCommand `json:"commands,omitempty"` // the last that ended, oldest first
	Marked       bool           `json:"marked"`             // the shell says where commands end; otherwise prompts are guessed at
	Queue        ShellQueue     `json:"queue"`
	Writer       string         `json:"writer,omitempty"`   // who is attached and types
	Observers    int            `json:"observers,omitzero"` // who are attached and watch
	Token        string         `json:"token"`              // of the end of its output
	First        string         `json:"first_token"`        // of the first output that is kept
}

// ShellQueue is what waits to be typed.
type ShellQueue struct {
	State    string `json:"state"` // "empty" or "busy"
	Requests int    `json:"requests,omitzero"`
	Bytes    int64  `json:"bytes,omitzero"`
}

// ShellPrompt is what a shell, or a program in it, asks with.
type ShellPrompt struct {
	Text   string `json:"text"`   // without escape sequences
	Source string `json:"source"` // "mark": the shell said so. "pattern": the end of the output looks like one.
}

// ShellCommand is a command in a shell, as far as the shell says where it begins and ends.
type ShellCommand struct {
	CommandID   string `json:"command_id"`
	InputID     string `json:"input_id,omitempty"`
	StartedAtNS int64  `json:"started_at_ns,omitzero"`
	EndedAtNS   int64  `json:"ended_at_ns,omitzero"`
	ExitCode    *int   `json:"exit_code,omitzero"`
	From        int64  `json:"from"`        // its output: offsets
	To          int64  `json:"to,omitzero"` // once it has ended
}

// ShellOutput is the answer to host.shell.output, and what is sent of it as it comes.
type ShellOutput struct {
	ExecID    string       `json:"exec_id"`
	SessionID string       `json:"session_id"`
	Chunks    []ShellChunk `json:"chunks"`
	Token     string       `json:"token"` // of what follows the chunks
	Status    ShellState   `json:"status"`
	Number    int          `json:"status_number"`
	Truncated bool         `json:"truncated,omitzero"` // what followed the token that was asked for is not kept any more
	End       bool         `json:"end,omitzero"`       // nothing follows, ever
	Receipt   *Receipt     `json:"receipt,omitzero"`
}

// ShellEnded is the status with which a WebSocket is closed when its shell has ended: who leaves one that goes on, closes it, too.
const ShellEnded = 4000

// ShellMessage is a text message to who is attached to a shell: exactly one of its members is there.
type ShellMessage struct {
	Output *ShellOutput `json:"output,omitzero"` // of the bytes of the binary message before it
	News   string       `json:"news,omitempty"`  // "observer": from here on somebody else types
	Denied *Receipt     `json:"denied,omitzero"` // policy does not let the output be read
}

// ShellChunk is output of a shell, up to where something is to be said of it. The bytes are as they came, without
// the marks.
type ShellChunk struct {
	Token     string       `json:"token"`  // of what follows it
	Offset    int64        `json:"offset"` // of its first byte
	Bytes     []byte       `json:"bytes,omitempty"`
	AtNS      int64        `json:"at_ns,omitzero"`
	Truncated bool         `json:"truncated,omitzero"`   // bytes before this are not kept any more
	CommandID string       `json:"command_id,omitempty"` // of the command that ended with it
	ExitCode  *int         `json:"exit_code,omitzero"`   // and its exit code
	Prompt    *ShellPrompt `json:"prompt,omitzero"`      // a prompt ends with it
}

// ShellResult is the payload of the operations on a shell.
type ShellResult struct {
	ExecID    string     `json:"exec_id,omitempty"`
	SessionID string     `json:"session_id,omitempty"`
	Accepted  bool       `json:"accepted"`
	Status    ShellState `json:"status"` // afterwards
	Number    int        `json:"status_number"`
	Duplicate bool       `json:"duplicate,omitzero"`
	CommandID string     `json:"command_id,omitempty"` // of what was typed, if that has the end of a line
	Bytes     int64      `json:"bytes,omitzero"`       // that were typed
	Actions   int        `json:"actions,omitzero"`     // that were done
	Cols      int        `json:"cols,omitzero"`
	Rows      int        `json:"rows,omitzero"`
	Token     string     `json:"token,omitempty"` // of the output that follows
	Typed     string     `json:"typed,omitempty"` // of an attachment: sha256:<hex> of all that was typed
	Stdout    *Output    `json:"stdout,omitzero"` // of a run: what the command wrote
	ExitCode  *int       `json:"exit_code,omitzero"`
	TimedOut  bool       `json:"timed_out,omitzero"`
	Summary   string     `json:"summary,omitempty"` // of a close
	ErrorCode Code       `json:"error_code,omitzero"`
}
