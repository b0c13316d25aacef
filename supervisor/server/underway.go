package server

import (
	"sync"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// underway bounds what one user has under way at once. A connection is no bound: over HTTP/2 it carries
// hundreds of requests, each with a body that is in memory until it is answered. As for connections, it is
// the uid that counts and not the scope, which is what the caller says (R090).
type underway struct {
	requests int   // of one user
	bytes    int64 // of JSON bodies and of answers to reads, of one user

	mu   sync.Mutex
	held map[uint32]load
}

// load is what one user has under way.
type load struct {
	requests int
	bytes    int64
}

var errTooMuch = api.Errorf(api.CodeTooManyRequests, "you have as much under way as one user may; wait for answers")

// begin counts a request, and reports whether there is room for it. Then it is to be ended.
func (c *call) begin() bool { return c.weigh(load{requests: 1}) }

// weigh counts more for a request, until its end.
func (c *call) weigh(more load) bool {
	if !c.server.under.take(c.principal.UID, more) {
		return false
	}
	c.load.requests += more.requests
	c.load.bytes += more.bytes
	return true
}

// unweigh gives back what was counted and is not needed.
func (c *call) unweigh(less load) {
	c.load.requests -= less.requests
	c.load.bytes -= less.bytes
	c.server.under.give(c.principal.UID, less)
}

func (c *call) end() { c.unweigh(c.load) }

// take takes more in, if there is room for it.
func (u *underway) take(uid uint32, more load) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	l := u.held[uid]
	l.requests += more.requests
	l.bytes += more.bytes
	if l.requests > u.requests || l.bytes > u.bytes {
		return false
	}
	u.held[uid] = l
	return true
}

func (u *underway) give(uid uint32, less load) {
	u.mu.Lock()
	defer u.mu.Unlock()
	l := u.held[uid]
	l.requests -= less.requests
	l.bytes -= less.bytes
	if u.held[uid] = l; l == (load{}) {
		delete(u.held, uid)
	}
}
