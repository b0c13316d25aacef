// Package rpc is S1's service as protobuf has it: session.proto, and what is generated from it.
//
// It promises that field numbers of S1 are S1's, and that what is here is what session.proto says: a test compiles and generates
// it anew. It has no behaviour; package server serves it.
package rpc

//go:generate go test -run ^TestGenerated$ . -update
