// Package gnrswire reads and writes messages of the global name resolution service as the original
// release of MobilityFirst has them: datagrams to UDP port 5001, each a [Message] that asks for or
// changes what a name (package frame) stands for, or answers that. All integers are big-endian.
//
// A message is a header of twelve bytes; an address of who asks; options; and what is asked or
// answered, with addresses as types, lengths and values. [Parse] takes what outsiders send: it is
// linear in its size, and what it returns shares its memory.
package gnrswire
