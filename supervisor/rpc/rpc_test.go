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

// typeOf is the type of a field as a .proto says it, with what stands before it.
func typeOf(m *descriptorpb.DescriptorProto, f *descriptorpb.FieldDescriptorProto) string {
	name := strings.ToLower(strings.TrimPrefix(f.GetType().String(), "TYPE_"))
	if f.TypeName != nil {
		name = f.GetTypeName()[strings.LastIndexByte(f.GetTypeName(), '.')+1:]
		for _, n := range m.NestedType {
			if n.GetName() == name && n.GetOptions().GetMapEntry() {
				return "map<" + typeOf(n, n.Field[0]) + "," + typeOf(n, n.Field[1]) + ">"
			}
		}
	}
	switch {
	case f.GetProto3Optional():
		return "optional/" + name
	case f.GetLabel() == descriptorpb.FieldDescriptorProto_LABEL_REPEATED:
		return "repeated/" + name
	}
	return name
}

// What S1 gives numbers to has these numbers and these types, and every other field of its messages is ours: from 100 on.
func TestNumbers(t *testing.T) {
	file, _ := compiled(t)
	seeds := map[string]string{
		"CreateSessionRequest":  "agent_id:string initial_cwd:string environment:map<string,string> policy:SessionPolicy",
		"SessionPolicy":         "idle_timeout_seconds:uint32 max_lifetime_seconds:uint32 allow_background_processes:bool inherit_agent_workspace:bool",
		"CreateSessionResponse": "session_id:string prompt:string metadata:SessionMetadata token:OutputToken",
		"SendInputRequest":      "session_id:string data:bytes actions:repeated/ControlAction",
		"ControlAction":         "type:Type cols:uint32 rows:uint32",
		"SendInputResponse":     "accepted:bool command_id:string state:SessionState",
		"ReadOutputRequest":     "session_id:string since:OutputToken max_bytes:uint32 wait_timeout_ms:uint32",
		"OutputChunk":           "session_id:string token:OutputToken payload:bytes truncated:bool exit_code:optional/uint32 prompt:optional/PromptInfo",
		"ReadOutputResponse":    "chunks:repeated/OutputChunk state:SessionState",
		"GetSessionRequest":     "session_id:string",
		"GetSessionResponse":    "metadata:SessionMetadata state:SessionState",
		"CloseSessionRequest":   "session_id:string mode:CloseMode",
		"CloseSessionResponse":  "final_state:SessionState summary:string",
		"SessionEvent":          "session_id:string type:Type detail:string",
	}
	procedures := "CreateSession SendInput ReadOutput GetSession CloseSession SubscribeSessionEvents"
	var served []string
	for _, m := range file.Service[0].Method {
		served = append(served, m.GetName())
		in, out := m.GetName()+"Request", m.GetName()+"Response"
		if m.GetServerStreaming() {
			out = "SessionEvent"
		}
		if !strings.HasSuffix(m.GetInputType(), "."+in) || !strings.HasSuffix(m.GetOutputType(), "."+out) || m.GetServerStreaming() != (m.GetName() == "SubscribeSessionEvents") {
			t.Errorf("%s takes %s and gives %s", m.GetName(), m.GetInputType(), m.GetOutputType())
		}
	}
	if got := strings.Join(served, " "); got != procedures {
		t.Errorf("procedures: %s", got)
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
			if got := f.GetName() + ":" + typeOf(m, f); n > len(names) || names[n-1] != got {
				t.Errorf("%s: %s = %d", m.GetName(), got, n)
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
