// Package openflow speaks the OpenFlow 1.3 wire protocol.
//
// The package knows bytes and nothing else: no sockets, no switches, no
// services. Match fields, actions, instructions, message types, multipart
// types and error codes are each described once, in an annotated table
// (field.go, action.go, instruction.go, message.go, multipart.go,
// errorcode.go); encoding, decoding, checking and printing follow from it.
//
// # Encoding
//
// Every message has AppendTo(b, xid), which appends the whole message, header
// included, to the caller's buffer and returns the longer buffer, so that a
// batch of messages becomes one write. On error the buffer is returned as it
// was given: nothing half encoded is ever left in it.
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
// On the path of every packet nothing is allocated: keep one [PacketIn] per
// connection, and a [PacketOut] and a buffer beside it, and use them again.
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
// OpenFlow Switch Specification 1.3.5; ONF extensions 230 (bundles) and 109
// (TCP flags); of Open vSwitch, the group modification that inserts and removes
// buckets. Other experimenter messages, actions, instructions, statistics and
// match fields are kept whole. The tests show every message to ovs-ofctl, to
// tshark and to a running Open vSwitch, which share no code with this package.
package openflow
