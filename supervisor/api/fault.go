package api

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/stockade-dev/stockade/sandbox"
)

// Bounds of a request. They are what the kernel, or a reader of records, can bear;
// what a caller may use is for policy to say.
const (
	maxList    = 4096        // elements of mounts, paths, outputs, env
	maxArgv    = 1 << 16     // elements of argv
	maxString  = 128<<10 - 1 // one argument or NAME=value: MAX_ARG_STRLEN less the NUL
	maxPath    = 4096 - 1    // PATH_MAX less the NUL
	maxLabels  = 64          // labels of a session
	maxLabel   = 1024        // bytes of a label's value
	maxName    = 128         // bytes of a label's name, of a member of scope
	maxPage    = 1000        // elements of a list that is read
	maxComment = 1024        // bytes of what is said about a decision
	maxCommand = 64 << 10    // bytes of one command of a shell
	maxActions = 64          // of one input of a shell
	maxEgress  = 256         // destinations of one network: policy compares each with each of its own
)

var (
	idPattern       = regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)
	profilePattern  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
	labelPattern    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$`)
	termPattern     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9+._-]{0,63}$`)
	envPattern      = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,255}$`)
	blobPattern     = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	hostnamePattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)
)

// stdinRef is the blob that feeds stdin, by either name (C28).
func (x *Exec) stdinRef() string {
	if x.Stdin != nil && x.Stdin.BlobRef != nil {
		return x.Stdin.BlobRef.BlobRef
	}
	return x.StdinRef
}

func targetFault(t Target) string {
	switch {
	case t.Unknown != "":
		return fmt.Sprintf("target %.80q is not known here", t.Unknown)
	case t.Local == nil:
		return "target has no arm; local is one"
	}
	return ""
}

func rootFault(r Root) string {
	arms := 0
	for _, set := range []bool{r.Host != nil, r.Dir != nil, r.Paths != nil} {
		if set {
			arms++
		}
	}
	switch {
	case arms > 1:
		return "root has more than one arm"
	case r.Dir != nil:
		return absFault("root.dir.path", r.Dir.Path)
	case r.Paths != nil && len(r.Paths.Paths) == 0:
		return "root.paths.paths is empty"
	case r.Paths != nil:
		return pathsFault("root.paths.paths", r.Paths.Paths)
	}
	return ""
}

func mountsFault(mounts []Mount) string {
	if len(mounts) > maxList {
		return fmt.Sprintf("mounts has more than %d elements", maxList)
	}
	seen := map[string]bool{}
	for i, m := range mounts {
		at := fmt.Sprintf("mounts/%d/", i)
		switch {
		case m.Mode != "ro" && m.Mode != "rw" && m.Mode != ModeOverlay:
			return at + "mode is none of ro, rw and overlay"
		case m.Bytes < 0 || m.Inodes < 0:
			return at + "bytes or inodes is negative"
		case m.Mode != ModeOverlay && (m.Bytes != 0 || m.Inodes != 0):
			return at + "bytes and inodes are the room of an overlay, which this is not"
		case m.GuestPath == "/":
			return at + "guest_path is the root, which has a member of its own"
		case seen[m.GuestPath]:
			return at + "guest_path is the target of another mount"
		}
		if f := absFault(at+"host_path", m.HostPath); f != "" {
			return f
		}
		if f := absFault(at+"guest_path", m.GuestPath); f != "" {
			return f
		}
		seen[m.GuestPath] = true
	}
	return ""
}

func envFault(env map[string]EnvValue, patch bool) string {
	if len(env) > maxList {
		return fmt.Sprintf("more than %d variables", maxList)
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		v := env[name]
		switch {
		case !envPattern.MatchString(name):
			return fmt.Sprintf("%.80q is not a variable's name", name)
		case v.SecretDigest != "":
			return name + ": secret_digest is for records, not for requests"
		case v.Unset && !patch:
			return name + ": null unsets a variable, which only env_patch can"
		case strings.ContainsRune(v.Text, 0):
			return name + ": the value contains a NUL byte"
		case len(name)+1+len(v.Text) > maxString:
			return fmt.Sprintf("%s: longer than %d bytes, which the kernel refuses", name, maxString)
		}
	}
	return ""
}

func argvFault(argv []string) string {
	if len(argv) > maxArgv {
		return fmt.Sprintf("argv has more than %d elements", maxArgv)
	}
	for i, arg := range argv {
		switch {
		case strings.ContainsRune(arg, 0):
			return fmt.Sprintf("argv/%d contains a NUL byte", i)
		case len(arg) > maxString:
			return fmt.Sprintf("argv/%d is longer than %d bytes, which the kernel refuses", i, maxString)
		}
	}
	return ""
}

func stdinFault(x *Exec) string {
	if x.Stdin == nil {
		return ""
	}
	arms := 0
	for _, set := range []bool{x.Stdin.InlineText != nil, x.Stdin.InlineBytes != nil, x.Stdin.BlobRef != nil, x.Stdin.SecretText != nil} {
		if set {
			arms++
		}
	}
	switch {
	case x.Stdin.SecretDigest != "":
		return "stdin: secret_digest is for records, not for requests"
	case arms != 1:
		return fmt.Sprintf("stdin has %d arms, it needs one", arms)
	case x.StdinRef != "" && (x.Stdin.BlobRef == nil || x.Stdin.BlobRef.BlobRef != x.StdinRef):
		return "stdin_ref is another name of stdin.blob_ref and contradicts it"
	case x.Stdin.BlobRef != nil && x.Stdin.BlobRef.BlobRef == "":
		return "stdin.blob_ref is empty"
	}
	return ""
}

// inputFault refuses what cannot be written to a pipe now: a blob has to be read first.
func inputFault(in *ProcessInput) string {
	if in.Data == nil {
		if in.Close {
			return ""
		}
		return "there is neither data nor close"
	}
	if in.Data.BlobRef != nil {
		return "data is inline_text, inline_bytes or secret_text"
	}
	return stdinFault(&Exec{Stdin: in.Data})
}

// keysFault is inputFault of what is typed.
func keysFault(in *ShellInput) string {
	if in.Data == nil && len(in.Actions) > 0 {
		return ""
	}
	if in.Data == nil {
		return "there is neither data nor an action"
	}
	return inputFault(&ProcessInput{Data: in.Data})
}

func commandFault(command string) string {
	switch {
	case strings.TrimSpace(command) == "":
		return "command is empty"
	case strings.ContainsRune(command, 0):
		return "command contains a NUL byte"
	case len(command) > maxCommand:
		return fmt.Sprintf("command is longer than %d bytes", maxCommand)
	}
	return ""
}

func actionsFault(actions []ShellAction) string {
	if len(actions) > maxActions {
		return fmt.Sprintf("actions has more than %d elements", maxActions)
	}
	for i, a := range actions {
		at := fmt.Sprintf("actions/%d/", i)
		switch a.Type {
		case ActionCtrlC, ActionCtrlD, ActionSIGINT, ActionSIGTERM, ActionSIGKILL:
			if a.Cols != 0 || a.Rows != 0 {
				return at + "cols and rows are those of RESIZE"
			}
		case ActionResize:
			if f := sizeFault(a.Cols, a.Rows); f != "" {
				return at + f
			}
		default:
			return at + "type is none of CTRL_C, CTRL_D, SIGINT, SIGTERM, SIGKILL and RESIZE"
		}
	}
	return ""
}

func sizeFault(cols, rows int) string {
	if cols < 1 || rows < 1 || cols > maxTerminal || rows > maxTerminal {
		return fmt.Sprintf("cols and rows are numbers from 1 to %d", maxTerminal)
	}
	return ""
}

func signalFault(name SignalName) string {
	if name.Number() == 0 {
		return fmt.Sprintf("%.40q is not a signal", name)
	}
	return ""
}

// refFault wants exactly one of the two ids.
func refFault(ref *ProcessRef) string {
	switch {
	case (ref.ExecID == "") == (ref.IntentID == ""):
		return "exactly one of exec_id and intent_id names an execution"
	case ref.ExecID != "":
		return idFault("exec_id", ref.ExecID)
	}
	return intentFault(ref.IntentID)
}

func intentFault(id string) string {
	if id == "" || len(id) > maxName {
		return "intent_id is not one that was ever given out"
	}
	return ""
}

func keyFault(name, key string) string { return textFault(name, key, maxName) }

// maxWait is how long an answer may be waited for: a connection that is quiet for longer is
// taken for a dead one by what lies between.
const maxWait = 60_000 // ms

func waitFault(ms int64) string {
	if ms < 0 || ms > maxWait {
		return fmt.Sprintf("wait_ms is not a number from 0 to %d", maxWait)
	}
	return ""
}

func labelsFault(labels map[string]string) string {
	if len(labels) > maxLabels {
		return fmt.Sprintf("more than %d labels", maxLabels)
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if !labelPattern.MatchString(name) {
			return fmt.Sprintf("%.80q is not a label's name", name)
		}
		if f := textFault("label "+name, labels[name], maxLabel); f != "" {
			return f
		}
	}
	return ""
}

func scopeFault(s Scope) string {
	for _, m := range []struct{ name, value string }{
		{"scope.agent_id", s.AgentID}, {"scope.world_id", s.WorldID}, {"scope.chat_id", s.ChatID},
	} {
		if f := textFault(m.name, m.value, maxName); f != "" {
			return f
		}
	}
	return ""
}

func limitsFault(l Limits) string {
	for _, m := range []struct {
		name  string
		value int64
	}{
		{"limits.memory_bytes", l.MemoryBytes}, {"limits.cpu_millis", l.CPUMillis},
		{"limits.pids", l.PIDs}, {"limits.output_bytes", l.OutputBytes},
		{"limits.files", l.Files}, {"limits.cpu_time_ns", l.CPUTimeNS},
		{"limits.cpu_weight", l.CPUWeight}, {"limits.io_bytes_per_second", l.IOBytesPerSecond},
		{"limits.disk_bytes", l.DiskBytes}, {"limits.disk_inodes", l.DiskInodes},
	} {
		if f := negative(m.name, m.value); f != "" {
			return f
		}
	}
	if l.CPUWeight > maxWeight {
		return fmt.Sprintf("limits.cpu_weight is more than %d", maxWeight)
	}
	return ""
}

// maxWeight is the largest share that the kernel knows (cpu.weight).
const maxWeight = 10_000

// sessionLimitsFault finds what one execution cannot have: its processes share these with the session.
func sessionLimitsFault(l Limits) string {
	for _, m := range []struct {
		name  string
		value int64
	}{
		{"cpu_weight", l.CPUWeight}, {"io_bytes_per_second", l.IOBytesPerSecond},
		{"disk_bytes", l.DiskBytes}, {"disk_inodes", l.DiskInodes},
	} {
		if m.value != 0 {
			return "limits." + m.name + " is a session's; it is asked for at the open"
		}
	}
	return ""
}

func degradedFault(layers []string) string {
	seen := map[string]bool{}
	for i, name := range layers {
		at := fmt.Sprintf("accept_degraded/%d", i)
		if f := unlisted(at, name, sandbox.Degradable...); f != "" {
			return f
		}
		if seen[name] {
			return at + " occurs twice"
		}
		seen[name] = true
	}
	return ""
}

// destinationsFault checks the form of a list of destinations, and that the mode has one.
func destinationsFault(name, mode string, list []Destination) string {
	switch {
	case len(list) > maxEgress:
		return fmt.Sprintf("%s has more than %d elements", name, maxEgress)
	case len(list) > 0 && mode != "egress" && mode != "full":
		return name + " names destinations, and there is no network; ask for egress"
	}
	for i, d := range list {
		if err := d.Validate(); err != nil {
			return fmt.Sprintf("%s/%d: %v", name, i, err)
		}
	}
	return ""
}

func graceFault(grace *int64) string {
	if grace == nil {
		return ""
	}
	return negative("grace_timeout_ns", *grace)
}

func pageFault(limit int64) string {
	if limit < 0 || limit > maxPage {
		return fmt.Sprintf("limit is not between 0 and %d", maxPage)
	}
	return ""
}

func pathsFault(name string, paths []string) string { return eachFault(name, paths, absFault) }

func eachFault(name string, paths []string, fault func(name, p string) string) string {
	if len(paths) > maxList {
		return fmt.Sprintf("%s has more than %d elements", name, maxList)
	}
	seen := map[string]bool{}
	for i, p := range paths {
		at := fmt.Sprintf("%s/%d", name, i)
		if f := fault(at, p); f != "" {
			return f
		}
		if seen[p] {
			return at + " occurs twice"
		}
		seen[p] = true
	}
	return ""
}

func absFault(name, p string) string {
	if f := pathFault(name, p); f != "" {
		return f
	}
	if !path.IsAbs(p) || path.Clean(p) != p {
		return name + " is not an absolute path without . and .. and doubled slashes"
	}
	return ""
}

// relFault wants a path below something: relative, in its one spelling, and never above it.
func relFault(name, p string) string {
	if f := pathFault(name, p); f != "" {
		return f
	}
	if p == "" || path.Clean("/"+p) != "/"+p {
		return name + " is not a relative path without . and .. and doubled slashes"
	}
	return ""
}

func pathFault(name, p string) string {
	switch {
	case strings.ContainsRune(p, 0):
		return name + " contains a NUL byte"
	case len(p) > maxPath:
		return fmt.Sprintf("%s is longer than %d bytes", name, maxPath)
	}
	return ""
}

func textFault(name, text string, most int) string {
	switch {
	case len(text) > most:
		return fmt.Sprintf("%s is longer than %d bytes", name, most)
	case !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl):
		return name + " contains characters that cannot be shown"
	}
	return ""
}

func idFault(name, id string) string {
	if !idPattern.MatchString(id) {
		return name + " is not one that was ever given out"
	}
	return ""
}

// needless refuses members that an operation does not look at.
func needless(names string, set bool) string {
	if set {
		return "this operation has no " + names
	}
	return ""
}

func negative(name string, n int64) string {
	if n < 0 {
		return name + " is negative"
	}
	return ""
}

func unlisted(name, value string, listed ...string) string {
	if slices.Contains(listed, value) {
		return ""
	}
	return fmt.Sprintf("%s %.80q is none of %s", name, value, strings.Join(slices.DeleteFunc(slices.Clone(listed), func(s string) bool { return s == "" }), ", "))
}

func optional(name, value string, fault func(name, value string) string) string {
	if value == "" {
		return ""
	}
	return fault(name, value)
}

func mismatch(name, value string, pattern *regexp.Regexp) string {
	if value == "" {
		return ""
	}
	return required(name, value, pattern)
}

func required(name, value string, pattern *regexp.Regexp) string {
	if pattern.MatchString(value) {
		return ""
	}
	return fmt.Sprintf("%s does not match %s", name, pattern)
}
