// Package stream brings chunks from one MobilityFirst host to another, in order and once each: the
// state of both ends, without sockets and without a clock of its own.
//
// A [Sender] cuts chunks into frames, which are numbered through a stream, and sends as many as the
// receiver has room for and the way seems to carry: a window that grows until frames are lost, as
// TCP's does (RFC 5681), with losses told by ranges that have come (RFC 2018) and by frames that
// were sent later and have come (RFC 9002, 6.1.1). A [Receiver] puts chunks together. A chunk stays
// with the sender until the receiver has taken it as its own (custody): that it has come is not
// enough.
//
// A stream is known by a number that the sender draws, and by nothing of where its ends are: either
// may move while it goes on.
//
// What comes from the other end is bounded: by the window, by the size of a chunk, and by what
// Config.Reserve gives. Neither type may be used by two goroutines at once. Start reading at [Sender.Send]
// and [Receiver.Data].
package stream
