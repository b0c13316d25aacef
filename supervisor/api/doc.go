// Package api holds what crosses the socket: requests, receipts, grants,
// operation names and error codes. It is data and the rules by which data is
// decoded; it opens nothing and decides nothing.
//
// One type serves as the HTTP body, as the policy input and as the journaled
// intent, so that the object that policy judged is the object that is executed.
// [Decode] is strict: unknown, doubled or wrongly cased members, trailing data
// and over-deep or over-long documents are refused. [Encode] is canonical: the
// same value always gives the same bytes, and integers stay exact.
package api
