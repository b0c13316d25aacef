// Stockade-relay is the way out of one session: see package relay. It is started by
// stockade-run, and by nobody else.
//
// The Go runtime must not open the cgroup files by which it sizes GOMAXPROCS: the relay sees none
// of its session's, and has two.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"os"

	"github.com/stockade-dev/stockade/sandbox/relay"
)

func main() { os.Exit(relay.Run()) }
