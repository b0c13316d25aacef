// Package sandbox holds what a sandbox is, as data: the [Spec] to be built, the
// [Exec] to be run in it, the [Ceiling] that bounds both, the facts about the
// [Host], and what happened ([Enforced], [Result]). It validates and compares; it
// makes no system call that changes anything.
//
// Both sides of the privilege boundary import it: the supervisor, which plans a
// Spec, and the runner, which checks it again and builds it.
package sandbox
