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
//	leave    where policy wants somebody's: it waits, until he gives or denies it or time is over
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
// Read on in this order:
//
//	supervisor.go                      the beginning and the end
//	pipeline.go, call.go, refusal.go   the order above, and what walks through it
//	operation.go                       the table: what each operation does at each stage; launcher.go: by whom
//	policy.go, activate.go, preview.go by which revision; how another comes to decide, and what that means to what is open
//	plan.go                            permission into mechanism
//	open.go, session.go, ending.go     the life of a session; idle.go, threshold.go: what ends or
//	                                   warns it unasked; load.go: what it uses
//	exec.go, execution.go, verdict.go  the life of a command, and how its end is told; hit.go: by which
//	                                   ceiling; stdin.go, output.go
//	approval.go, review.go             what waits for somebody's leave before it is carried out, and what is
//	opinion.go, approvals.go           shown of it; who says what of it, and the list
//	control.go, input.go, freeze.go    what is done to it while it lives
//	shell.go, transcript.go            one on a terminal: where it is, and what came out of it;
//	bookmark.go, recording.go          where its commands ended, and what it looked like from its beginning on
//	forward.go                         how its owner reaches a port inside
//	keys.go, attach.go, shim.go        what is typed, request by request, by a hand, or a command at a time
//	workspace.go, narrow.go            what is done to a session: its overlays, its network;
//	                                   file.go: what its file tools do
//	record.go, chronicle.go            from the journal to the state; index.go, names.go, key.go: what
//	                                   is found in it; registry.go: what lives
//	frame.go, watch.go, notice.go      what is told while it runs, and after; source.go: where output is
//	                                   read, cursor.go: how far, wake.go: when
//	read.go, process.go, intent.go     operations without effect; capabilities.go: what can be
//	                                   enforced; blobs.go: content, both ways
//	pass.go, reconcile.go, adopt.go    a start: replay, comparison with the runner, going on;
//	                                   snapshot.go, retention.go: what a start reads, and what is kept
//	decision.go, export.go, verify.go, what the files say without a supervisor
//	fsck.go; backup.go
//	account.go                         what is counted of all this, and told to whoever watches
//
// DESIGN.md has the choices.
package supervisor
