// Package rego is where policy decides: it loads a tree of Rego and data, asks it
// one question per operation, and meets its grant with the request and the
// operator's ceiling.
//
// It promises that a failure is a denial. [Engine.Decide] has no error result: a
// policy that is undefined, late, ambiguous, malformed or generous beyond the
// ceiling gives a [Decision] that denies and says which of these it was. The same
// revision and the same input give the same decision: there is no clock but
// [Input.NowNS], no randomness, no network and no file behind a policy.
//
// It does not journal, does not know sessions, and resolves no path: what a policy
// needs to know about the host arrives as facts. OPA is imported here and nowhere else.
package rego
