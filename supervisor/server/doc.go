// Package server is the supervisor on a unix socket: HTTP/1.1 and h2c, JSON bodies,
// events as server-sent events or lines; and S1's service as gRPC.
//
// It promises that an operation is asked for by the peer that the kernel names, that
// what does not decode strictly never becomes an operation, that every answer is a
// receipt, a document or a code, and that neither a slow nor a vanished reader holds
// anything up: a disconnect ends the stream, never the work.
//
// It decides nothing, records nothing and owns no state but connections. Which
// operation a route asks for, and so what policy is asked, is the third column of one
// table ([Server] refuses to exist with a row that lacks it); which ones a remote procedure
// leads to says sessionService.
package server
