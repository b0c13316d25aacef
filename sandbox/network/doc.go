// Package network gives a session its network, and proves that it is no more than that. It takes root, and is
// linked into stockade-run only.
//
// The session's network namespace has no interface but its loopback, so nothing in it leads out. With a network, every address is
// local there, nftables rules turn TCP to anything but the session's own loopback, and every question to DNS, to
// sockets that listen in the namespace, and the rest is dropped, so that it fails at once (EPERM). The sockets are held by stockade-relay
// (package relay), which lives in the host's network namespace, judges each connection and dials the allowed ones
// itself. It has no privilege; when it dies, the session has no network.
//
//	program ── connect ──▶ nat output: redirect ──▶ listener ── accept ──▶ relay ── dial ──▶ destination
//	          (session's namespace, loopback)                  (host's namespace)
//
// What it promises: nothing of the host's firewall, routes or sysctls changes; nothing inside can
// change the rules, whatever user it is, without CAP_NET_ADMIN, and with it the way out is still the relay; a
// close never waits. What it does not: to judge what is said on a connection once it has been let through.
package network
