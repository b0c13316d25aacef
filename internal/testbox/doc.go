// Package testbox is the equipment of tests that run the real binaries as root: it
// builds them, starts a supervisor on a directory of its own, and checks around a test
// that nothing was left behind.
//
// Everything is scoped to the instance under test, because other tests, and other
// supervisors, may run on the machine: it looks at the cgroups that bear the
// instance's name, at mounts and files below its directory, at processes in those
// cgroups or started from its binaries, and at the descriptors of its daemon and runner. It
// is not for production code.
package testbox
