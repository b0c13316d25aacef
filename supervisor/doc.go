// Package supervisor decides what may run, has it built, and proves what happened.
//
// A caller asks for a session; policy answers with a grant; the runner builds exactly
// that grant out of kernel objects; commands run in it; every operation ends in one
// receipt. Five nouns, one per stage, each with one type:
//
//	api.Request ──▶ rego.Decision ──▶ sandbox.Spec ──▶ sandbox.Result ──▶ api.Receipt
//	   asked           allowed          to be built        happened           proved
//
// The request is the body of the call, the input of policy and the intent in the
// journal: what was judged is what is carried out. Permission becomes mechanism in one
// pure function, plan.
//
// Every operation with effect walks one pipeline, [Supervisor.Do]:
//
//	admit    is it well formed, does its session belong to the caller, is there room
//	resolve  what do its host paths lead to, under the caller's own identity
//	policy   may it: one question to Rego, without any secret in it
//	plan     as what exactly: the meet of request, grant and ceiling
//	intent   request and decision become durable; nothing has happened yet
//	act      build, spawn, signal, close, store: through the [Launcher] and the blob store
//	receipt  what happened becomes durable, and then the caller sees it
//
// The promises that follow from this order:
//
//   - Nothing starts before its intent is durable, and no outcome is told before its
//     receipt is. Every intent has exactly one receipt, whatever is killed when.
//   - What runs outlives the supervisor: the runner holds it, and the next supervisor goes on
//     with it. What cannot be gone on with is settled, once; no ending is made up.
//   - What is known of the past is a fold over the journal: package ledger.
//   - What goes wrong with policy is a denial, and a denial has a receipt.
//   - A caller that goes away ends its waiting, not its work.
//   - Another principal's session answers like one that does not exist.
//   - A secret reaches the process that it is for; not the journal, not policy, no log.
//
// It needs no privilege: what does is behind the [Launcher]. It does not speak HTTP
// (that is supervisor/server), does not know Rego's syntax, and makes no mount.
//
// Read on in pipeline.go (the order), operation.go and control.go (what each operation does at
// each stage), plan.go (permission into mechanism), session.go and execution.go (the two
// lives), chronicle.go (the state that the journal makes), frame.go, watch.go and output.go (what is
// told while a command runs, and what is left of it), key.go (once only), registry.go and index.go (where
// what lives and what is settled are found), stdin.go and input.go, replay.go and adopt.go (after a
// restart), read.go and lookup.go (operations without effect), decision.go (a decision from its
// records), idle.go and threshold.go (what the supervisor does unasked), pass.go and snapshot.go (where
// a start begins), retention.go and names.go (what goes, and what stays for whom), verify.go and fsck.go
// (a state directory from its files alone). DESIGN.md has the choices.
package supervisor
