package api

// Op names an operation. It is what policy is asked and what a receipt records.
type Op string

// The operations of this version.
const (
	OpSessionOpen   Op = "host.session.open"
	OpSessionGet    Op = "host.session.get"
	OpSessionList   Op = "host.session.list"
	OpSessionSignal Op = "host.session.signal"
	OpSessionClose  Op = "host.session.close"
	OpExec          Op = "host.exec"
	OpOutput        Op = "host.process.output"
	OpBlobPut       Op = "blob.put"
	OpBlobGet       Op = "blob.get"
	OpReceiptGet    Op = "receipt.get"
	OpReceiptList   Op = "receipt.list"
	OpCheckpoint    Op = "receipt.checkpoint"
	OpDecide        Op = "policy.decide"
	OpHostInfo      Op = "host.info"
)

// aliases are accepted on input (C1); records carry the canonical name and, as
// requested_kind, the name that was used.
var aliases = map[Op]Op{
	"process.session.open":   OpSessionOpen,
	"process.exec":           OpExec,
	"process.session.signal": OpSessionSignal,
}

// Canonical returns the canonical name of op, which is op itself unless op is an alias.
func (op Op) Canonical() Op {
	if c, ok := aliases[op]; ok {
		return c
	}
	return op
}
