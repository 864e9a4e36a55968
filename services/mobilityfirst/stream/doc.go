// Package stream transfers chunks from one MobilityFirst host to another, in order and exactly
// once. It holds the protocol state of both ends, without sockets and without a clock of its own.
//
// A [Sender] cuts chunks into frames, which are numbered through a stream, and sends as many as the
// receiver has room for and the path seems to carry. Its congestion window grows until frames are
// lost, as TCP's does (RFC 5681). It detects losses by acknowledged ranges (RFC 2018) and by the
// acknowledgement of frames that were sent later (RFC 9002, 6.1.1). A [Receiver] reassembles
// chunks. A chunk stays with the sender until the receiver has taken it over (custody): an
// acknowledgement that it has arrived is not enough.
//
// A stream is identified by a random number that the sender draws, and not by the addresses of its
// ends: either end may move during the stream.
//
// Memory for input from the other end is limited by the window, by the size of a chunk, and by
// Config.Reserve. Neither type may be used by two goroutines at once. Start reading at
// [Sender.Send] and [Receiver.Data].
package stream
