// Package gnrswire encodes and decodes messages of the global name resolution service of
// MobilityFirst's original release: datagrams to UDP port 5001, each a [Message] that looks up or
// changes the addresses of a name (package frame), or answers such a request. All integers are
// big-endian.
//
// A message consists of a header of twelve bytes, the address of the requester, options, and the
// request or answer, with addresses as types, lengths and values. [Parse] accepts input from
// untrusted hosts: it is linear in the input's size, and its result shares the input's memory.
package gnrswire
