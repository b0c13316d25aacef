// Package worker evaluates policy in processes that can do nothing else: each has a compiled revision, one socket and
// no way out. [Pool] is the daemon's side; the other one is a program's second face, [Main].
//
// It promises that whatever becomes of an evaluation, the daemon goes on: one that is late, or takes too much of the
// processor, is killed with its process, one that needs more memory than there is ends its own; that request is denied with a
// stable code, and a spare process that waited serves the next. A worker answers with bytes, which are decoded, judged and met in the daemon as those of
// an engine of its own ([rego.Decide]): one that is taken over can deny, and allow what the request, the operator's ceiling
// and no denial of its own rule out, and nothing else.
//
// It also promises that nothing of it stays: a worker ends when its socket does, and by a signal when the thread ends
// that started it, whatever either of them is doing.
//
// What it does not do: tell a policy that is wrong from one that is right, or share anything between two revisions.
// It never falls back to an evaluation without these walls: who cannot have them is told so.
package worker
