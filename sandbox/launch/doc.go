// Package launch is the socket between the daemon, which decides, and the runner,
// which holds root: [Dial] and [Runner] are the daemon's end, [Listen], [Listener] and
// [Handler] the runner's.
//
// It promises that calls interleave freely in both directions, that every started
// execution ends in exactly one result or in the loss of the runner, whichever daemon
// started it, that the runner serves one daemon at a time, of one uid or root, and that
// a descriptor is either handed to its receiver or closed, whatever goes wrong. It judges
// nothing: the Handler checks what it is asked.
package launch
