// Package ledger is what the journal amounts to: every intent, execution, session,
// idempotency key, frame and event, as a fold over the records.
//
//	journal ──▶ Decode ──▶ Record ──▶ State.Apply ──▶ queries, events, Snapshot
//
// [State.Apply] is the only thing that changes a [State]. It has no clock, no lock and no disk, so
// that the same records in the same order give the same state, byte for byte: while they are
// written, when they are read again, and when the first of them are replaced by a snapshot
// (R249). What a record asks for and cannot be, a second receipt or a state that does not
// follow, does not happen; it is counted, and who has the intent gets an event that says so
// (R116, R227).
//
// What it is not: it holds no handle (pipes, timers and readers belong to who runs things),
// judges nothing, and writes nothing. Its caller serializes: queries may run
// together, but not beside an Apply.
package ledger
