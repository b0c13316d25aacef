package archtest

// Modules that a row may name.
const (
	cgroups     = "github.com/containerd/cgroups/v3"
	cterm       = "golang.org/x/term"
	websocket   = "github.com/coder/websocket"
	cobra       = "github.com/spf13/cobra"
	connect     = "connectrpc.com/connect"
	cpath       = "C"
	errdetails  = "google.golang.org/genproto/googleapis/rpc"
	fsnotify    = "github.com/fsnotify/fsnotify"
	hujson      = "github.com/tailscale/hujson"
	grpcreflect = "connectrpc.com/grpcreflect"
	jsonSchema  = "github.com/google/jsonschema-go"
	jsonexp     = "github.com/go-json-experiment/json"
	libcgroups  = "github.com/opencontainers/cgroups"
	libseccomp  = "github.com/seccomp/libseccomp-golang"
	logrus      = "github.com/sirupsen/logrus"
	mcpSDK      = "github.com/modelcontextprotocol/go-sdk"
	mountinfo   = "github.com/moby/sys/mountinfo"
	netlink     = "github.com/vishvananda/netlink"
	nftables    = "github.com/google/nftables"
	opa         = "github.com/open-policy-agent/opa"
	otel        = "go.opentelemetry.io/otel"
	pflag       = "github.com/spf13/pflag"
	prometheus  = "github.com/prometheus/client_golang"
	protobuf    = "google.golang.org/protobuf"
	runc        = "github.com/opencontainers/runc"
	runtimeSpec = "github.com/opencontainers/runtime-spec"
	systemd     = "github.com/coreos/go-systemd/v22"
	tlog        = "golang.org/x/mod"
	units       = "github.com/docker/go-units"
	unix        = "golang.org/x/sys"
	xnet        = "golang.org/x/net"
)

// Row says what the files of one package may import beyond the standard library.
type Row struct {
	Path   string
	Ours   []string // packages of this module
	Theirs []string // modules or packages of others
}

// Table is the order of the tree: a package may import what its row names and
// nothing else, and a package without a row does not exist. Rows are sorted from
// the nouns to the commands; no row names one that follows it.
var Table = []Row{
	// What crosses a boundary: data only.
	{"sandbox", nil, []string{jsonexp, hujson}},
	{"sandbox/file", nil, nil},
	{"supervisor/api", []string{"sandbox", "sandbox/file"}, []string{jsonexp}},

	// Tools without knowledge of what they serve.
	{"internal/cleanup", nil, nil},
	{"internal/failpoint", nil, nil},
	{"internal/callfilter", nil, []string{unix}},
	{"internal/openat2", nil, []string{unix}},
	{"internal/memfile", nil, []string{unix}},
	{"internal/packet", []string{"internal/memfile"}, []string{unix}},
	{"internal/reexec", nil, []string{unix}},
	{"internal/thread", []string{"sandbox"}, []string{unix}},
	{"internal/durable", nil, []string{unix}},
	{"internal/blob", []string{"internal/durable", "internal/failpoint"}, []string{unix}},
	{"internal/spool", []string{"internal/durable", "internal/blob", "internal/failpoint"}, []string{unix}},
	{"internal/journal", []string{"internal/durable", "internal/failpoint"}, []string{unix, tlog, jsonexp}},

	{"internal/turns", nil, nil},
	{"internal/prompt", nil, nil},
	{"internal/instant", nil, nil},
	{"internal/carry", nil, []string{websocket}},
	{"internal/escape", nil, nil},

	// Manual pages. Only commands that were built to write them link it.
	{"internal/manual", nil, []string{cobra, pflag}},

	// The file tools, which will be linked into PID 1 of every session: nothing of others.
	{"internal/filetool/tree", []string{"sandbox/file"}, []string{unix}},
	{"internal/filetool/stage", []string{"internal/filetool/tree", "sandbox/file"}, []string{unix}},
	{"internal/filetool/edit", nil, nil},
	{"internal/filetool/patch", []string{"internal/filetool/edit", "sandbox/file"}, nil},
	{"internal/filetool/glob", nil, nil},
	{"internal/filetool/ignore", []string{"internal/filetool/glob"}, nil},
	{"internal/filetool/search", nil, nil},
	{"internal/filetool/ripgrep", []string{"internal/memfile", "internal/packet"}, []string{unix}},
	{"internal/filetool", []string{"internal/filetool/ripgrep", "internal/filetool/tree", "internal/filetool/stage", "internal/filetool/edit", "internal/filetool/patch", "internal/filetool/glob", "internal/filetool/ignore", "internal/filetool/search", "sandbox/file"},
		[]string{unix}},

	{"sandbox/files", []string{"internal/memfile", "internal/packet", "sandbox/file"}, []string{unix}},

	// Policy: the only place where OPA enters.
	{"policies", nil, nil},
	{"rego", []string{"supervisor/api", "sandbox"}, []string{opa, jsonexp, xnet}},
	{"rego/worker", []string{"internal/callfilter", "rego", "supervisor/api", "sandbox"}, []string{jsonexp, unix}},
	{"rego/bundle", []string{"rego", "supervisor/api", "internal/durable"}, []string{opa, jsonexp, unix}},
	{"rego/workbench", []string{"internal/durable", "rego", "rego/bundle", "policies", "supervisor/api", "sandbox"}, []string{cobra, jsonexp}},

	// The sandbox, inside and out. The guest is linked into PID 1 of every session.
	{"sandbox/guest", []string{"internal/packet"}, []string{unix}},
	{"sandbox/pty", nil, []string{unix}},
	{"sandbox/launch", []string{"sandbox", "internal/packet", "internal/turns", "internal/failpoint"}, []string{unix, jsonexp}},
	{"sandbox/seccomp", nil, []string{libseccomp, unix}},
	{"sandbox/notify", nil, []string{unix}},
	{"sandbox/cgroup", []string{"sandbox", "internal/cleanup"}, []string{cgroups, libcgroups, mountinfo, runtimeSpec, unix}},
	{"sandbox/host", []string{"sandbox", "sandbox/cgroup", "internal/memfile", "internal/thread"}, []string{nftables, unix}},
	{"sandbox/relay", []string{"internal/callfilter", "internal/packet"}, []string{unix, xnet}},
	{"sandbox/network", []string{"sandbox", "sandbox/relay", "internal/packet", "internal/cleanup"}, []string{netlink, nftables, unix}},
	{"sandbox/oci", []string{"sandbox"}, []string{runtimeSpec}},
	{"sandbox/workspace", []string{"internal/openat2", "sandbox", "internal/cleanup", "internal/thread", "internal/turns"}, []string{jsonexp, unix}},
	{"sandbox/runc", []string{"internal/memfile", "internal/openat2", "sandbox", "sandbox/workspace", "internal/thread", "internal/turns", "sandbox/oci", "sandbox/launch", "sandbox/guest", "sandbox/seccomp", "sandbox/notify", "sandbox/cgroup", "sandbox/network", "internal/cleanup", "internal/failpoint"},
		[]string{runc, libcgroups, logrus, runtimeSpec, jsonexp, unix}},

	// The supervisor and its two sides.
	{"supervisor/ledger", []string{"supervisor/api", "rego", "sandbox"}, []string{jsonexp}},
	{"supervisor/telemetry", []string{"supervisor/api"}, []string{otel, prometheus}},
	{"supervisor", []string{"supervisor/api", "supervisor/ledger", "supervisor/telemetry", "rego", "rego/bundle", "sandbox", "sandbox/file", "sandbox/files", "sandbox/launch", "sandbox/pty", "internal/prompt", "internal/escape", "internal/memfile", "internal/journal", "internal/spool", "internal/blob", "internal/cleanup", "internal/durable", "internal/failpoint"},
		[]string{jsonexp, unix, tlog}},
	{"supervisor/client", []string{"supervisor/api", "internal/carry"}, []string{jsonexp, websocket}},
	{"supervisor/tools", []string{"supervisor/api", "sandbox/file", "internal/escape", "internal/filetool/glob"}, []string{jsonexp}},
	{"supervisor/mcp", []string{"supervisor/api", "supervisor/tools"}, []string{mcpSDK, jsonSchema}},
	{"supervisor/rpc", nil, []string{connect, protobuf}},
	{"supervisor/server", []string{"internal/carry", "supervisor/api", "supervisor/rpc", "supervisor/telemetry", "supervisor/tools", "sandbox"}, []string{jsonexp, unix, websocket, connect, grpcreflect, errdetails, protobuf}},

	// Test equipment.
	{"internal/archtest", nil, nil},
	{"internal/testbox", []string{"supervisor/api", "supervisor/client", "supervisor/ledger", "internal/journal", "internal/filetool", "sandbox/files"}, []string{netlink, unix, xnet}},
	{"integration/probe", nil, []string{unix}},
	{"integration/compare", []string{"sandbox/file", "supervisor/api", "supervisor/client", "internal/testbox", "policies", "rego", "rego/worker", "sandbox"}, nil},

	// The five commands.
	{"cmd/stockade-init", []string{"internal/callfilter", "sandbox/guest", "sandbox/files", "internal/filetool", "internal/filetool/ripgrep"}, []string{unix}},
	{"cmd/stockade", []string{"supervisor/api", "supervisor/client", "supervisor/mcp", "supervisor/tools", "sandbox", "sandbox/file", "internal/escape", "internal/instant", "internal/journal", "internal/manual"}, []string{cobra, cterm, pflag, mcpSDK, units, tlog, unix, jsonexp}},
	{"cmd/stockaded", []string{"internal/filetool/ripgrep", "internal/instant", "supervisor", "supervisor/api", "supervisor/client", "supervisor/server", "supervisor/telemetry", "rego", "rego/bundle", "rego/worker", "rego/workbench", "policies", "sandbox", "sandbox/launch", "internal/manual"},
		[]string{cobra, fsnotify, hujson, jsonexp, pflag, systemd, unix}},
	{"cmd/stockade-relay", []string{"sandbox/relay"}, nil},
	{"cmd/stockade-run", []string{"sandbox", "sandbox/launch", "sandbox/runc", "sandbox/host", "sandbox/cgroup", "internal/failpoint", "internal/reexec", "internal/manual"}, []string{cobra, jsonexp, systemd, unix}},
}

// Reach bounds what a command may link through any chain of our packages.
type Reach struct {
	Module string
	Only   []string // commands that may reach it
}

// Walls are the modules that only some commands may link. OPA costs start-up time and
// memory and evaluates other people's code; cgo and libcontainer belong to the one
// privileged process.
var Walls = []Reach{
	{opa, []string{"cmd/stockaded"}},
	{runc, []string{"cmd/stockade-run"}},
	{libseccomp, []string{"cmd/stockade-run"}},
	{libcgroups, []string{"cmd/stockade-run"}},
	{cgroups, []string{"cmd/stockade-run"}},
	{netlink, []string{"cmd/stockade-run"}},
	{nftables, []string{"cmd/stockade-run"}},
	{cpath, []string{"cmd/stockade-run"}},
	{connect, []string{"cmd/stockaded"}},
}

// Gates are the packages through which a module enters the tree.
var Gates = []struct {
	Module string
	Only   []string // packages, with everything below them
}{
	{opa, []string{"rego"}},
	{runc, []string{"sandbox/runc"}},
	{libseccomp, []string{"sandbox/seccomp"}},
	{netlink, []string{"sandbox/network", "internal/testbox"}},
	{nftables, []string{"sandbox/network", "sandbox/host"}},
	{xnet, []string{"sandbox/relay", "sandbox/network", "internal/testbox", "rego"}},
	{cobra, []string{"cmd", "rego/workbench", "internal/manual"}},
	{connect, []string{"supervisor/rpc", "supervisor/server"}},
	{protobuf, []string{"supervisor/rpc", "supervisor/server"}},
}
