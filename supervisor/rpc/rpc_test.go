package rpc

import (
	"bytes"
	"flag"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/linker"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// registered is the name of session.proto among all that a process may link.
const registered = "stockade/shell/v1/session.proto"

var update = flag.Bool("update", false, "rewrite what is generated")

// compiled is session.proto, and everything that it imports before it.
func compiled(t *testing.T) (*descriptorpb.FileDescriptorProto, []*descriptorpb.FileDescriptorProto) {
	t.Helper()
	c := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{
			Accessor: func(name string) (io.ReadCloser, error) {
				if name != registered {
					return nil, fs.ErrNotExist
				}
				return os.Open("session.proto")
			},
		}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := c.Compile(t.Context(), registered)
	if err != nil {
		t.Fatal(err)
	}
	var all []*descriptorpb.FileDescriptorProto
	seen := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
		all = append(all, protoutil.ProtoFromFileDescriptor(f))
	}
	add(files[0].(linker.File))
	return all[len(all)-1], all
}

// What is committed is what the generators make of session.proto, at the versions of go.mod.
func TestGenerated(t *testing.T) {
	_, all := compiled(t)
	for _, g := range []struct{ program, parameter string }{
		{"google.golang.org/protobuf/cmd/protoc-gen-go", "paths=source_relative"},
		{"connectrpc.com/connect/cmd/protoc-gen-connect-go", "paths=source_relative,package_suffix,simple"},
	} {
		ask, err := proto.Marshal(&pluginpb.CodeGeneratorRequest{FileToGenerate: []string{registered}, Parameter: &g.parameter, ProtoFile: all})
		if err != nil {
			t.Fatal(err)
		}
		var failed bytes.Buffer
		cmd := exec.CommandContext(t.Context(), "go", "run", g.program)
		cmd.Stdin, cmd.Stderr = bytes.NewReader(ask), &failed
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", g.program, err, failed.Bytes())
		}
		var answer pluginpb.CodeGeneratorResponse
		if err := proto.Unmarshal(out, &answer); err != nil || answer.Error != nil || len(answer.File) != 1 {
			t.Fatalf("%s: %v, %s, %d files", g.program, err, answer.GetError(), len(answer.File))
		}
		name, content := path.Base(answer.File[0].GetName()), answer.File[0].GetContent()
		if *update {
			if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if have, err := os.ReadFile(name); err != nil || string(have) != content {
			t.Errorf("%s is not what session.proto says (%v); run go generate ./supervisor/rpc", name, err)
		}
	}
}

// What S1 gives numbers to has these numbers, and every other field of its messages is ours: from 100 on.
func TestNumbers(t *testing.T) {
	file, _ := compiled(t)
	seeds := map[string]string{
		"CreateSessionRequest":  "agent_id initial_cwd environment policy",
		"SessionPolicy":         "idle_timeout_seconds max_lifetime_seconds allow_background_processes inherit_agent_workspace",
		"CreateSessionResponse": "session_id prompt metadata token",
		"SendInputRequest":      "session_id data actions",
		"ControlAction":         "type cols rows",
		"SendInputResponse":     "accepted command_id state",
		"ReadOutputRequest":     "session_id since max_bytes wait_timeout_ms",
		"OutputChunk":           "session_id token payload truncated exit_code prompt",
		"ReadOutputResponse":    "chunks state",
		"GetSessionRequest":     "session_id",
		"GetSessionResponse":    "metadata state",
		"CloseSessionRequest":   "session_id mode",
		"CloseSessionResponse":  "final_state summary",
		"SessionEvent":          "session_id type detail",
	}
	enums := map[string]string{
		"SessionState":       "UNKNOWN RUNNING BUSY IDLE CLOSING CLOSED ERROR",
		"ControlAction.Type": "CTRL_C CTRL_D SIGINT SIGTERM SIGKILL RESIZE",
		"SessionEvent.Type":  "IDLE_WARNING IDLE_TIMEOUT RESOURCE_THRESHOLD POLICY_VIOLATION SESSION_CLOSED",
		"CloseMode":          "GRACEFUL FORCE",
	}
	enum := func(name string, e *descriptorpb.EnumDescriptorProto) {
		want := strings.Fields(enums[name])
		delete(enums, name)
		for i, v := range e.Value {
			if int(v.GetNumber()) != i || i >= len(want) || v.GetName() != want[i] {
				t.Errorf("%s: %s = %d", name, v.GetName(), v.GetNumber())
			}
		}
		if len(e.Value) != len(want) {
			t.Errorf("%s has %d values", name, len(e.Value))
		}
	}
	for _, e := range file.EnumType {
		enum(e.GetName(), e)
	}
	for _, m := range file.MessageType {
		for _, e := range m.EnumType {
			enum(m.GetName()+"."+e.GetName(), e)
		}
		want, ok := seeds[m.GetName()]
		if !ok {
			continue
		}
		delete(seeds, m.GetName())
		names := strings.Fields(want)
		for _, f := range m.Field {
			n := int(f.GetNumber())
			if n >= 100 {
				continue
			}
			if n > len(names) || names[n-1] != f.GetName() {
				t.Errorf("%s: %s = %d", m.GetName(), f.GetName(), n)
				continue
			}
			names[n-1] = ""
		}
		if left := strings.TrimSpace(strings.Join(names, " ")); left != "" {
			t.Errorf("%s lacks %s", m.GetName(), left)
		}
	}
	if len(seeds)+len(enums) > 0 {
		t.Errorf("there is no %v %v", seeds, enums)
	}
}
