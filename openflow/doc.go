// Package openflow implements the OpenFlow 1.3 wire protocol.
//
// The package encodes and decodes messages only: it opens no sockets, and it does not know switches
// or services. Match fields, actions, instructions, message types, multipart types and error codes
// are each described once, in an annotated table (field.go, action.go, instruction.go, message.go,
// multipart.go, errorcode.go). Encoding, decoding, checking and printing use these tables.
//
// # Encoding
//
// Every message has AppendTo(b, xid), which appends the whole message, header included, to the
// caller's buffer and returns the longer buffer, so that a batch of messages becomes one write. On
// error AppendTo returns the buffer as it was given, without any part of the message.
//
// # Decoding
//
// Every message has Decode(b), which takes one whole message, header included,
// as [Reader.Next] delivers it. Byte slices of the decoded message (packet
// data, error data, experimenter bodies) point into b; they are valid as long
// as b is. [Decode] chooses the Go type from the header. Decoders never panic
// and never loop: input that is wrong gives a [*DecodeError] that says which
// structure was wrong, where and why.
//
// No memory is allocated for a packet if the caller keeps one [PacketIn], one [PacketOut] and one
// buffer for each connection, and uses them again.
//
// # Matches
//
// A [Match] is immutable and canonical: equal matches are equal under == and
// can be keys of a map. [NewMatch] refuses what a switch would refuse: a field
// without its prerequisites, a field given twice, a value wider than the field,
// a mask where none is allowed, a value with bits outside its mask.
//
// # Standards
//
// The package implements the OpenFlow Switch Specification 1.3.5, the ONF extensions 230 (bundles)
// and 109 (TCP flags), and Open vSwitch's group modification that inserts and removes buckets. The
// content of other experimenter messages, actions, instructions, statistics and match fields is
// kept as bytes. The tests pass every message to ovs-ofctl, to tshark and to a running Open
// vSwitch, which share no code with this package.
package openflow
