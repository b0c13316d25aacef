// Package relay is the way out of a session that has a network: the process stockade-relay, one per session.
// It holds sockets that listen in the session's network namespace, where rules lead every connection and every
// question to DNS to them, and it lives in the host's. It judges each, and carries the allowed ones.
//
// What it promises:
//
//   - A name is granted as a name. Questions are answered for granted names only; nothing of another leaves
//     the process. Where the grant asks for it, the first bytes of a connection must carry the name again (TLS server name, HTTP
//     host), and the relay dials addresses that it has resolved for that name itself, never the one that the program chose. So
//     an address that two names share admits one of them.
//   - An address that is not public is reached only when a granted prefix lies within its range, and one that the operator denies
//     never, in whatever clothes and by whatever name (T031; rebinding).
//   - Of HTTP one request is carried per connection, and exactly as many bytes of it as it announced, with "Connection: close". Rejected: judging every request of a
//     connection that stays open. After a request to upgrade, the bytes are or are not HTTP depending on the answer, so that answers
//     would have to be parsed too, as the other end does, to the byte.
//   - What it costs is bounded: connections, questions under way, bytes held of each, events told.
//
// What it does not promise: to see what is encrypted. After the server name has been granted, a server that serves
// several names by what is said inside of TLS (a Host header, an inner ClientHello) serves them all.
//
// It takes no privilege, refuses to run with any, and ends with its control socket. It is linked into stockade-relay, and what it says
// with its parent into stockade-run: standard library, x/sys and dnsmessage only.
package relay
