// Package compute calls functions on chunks on their way to a destination.
//
// A function is a name (GUID), as everything in MobilityFirst: every host with its key may run it,
// several at one time, and the network leads to one of them. A sender signs an [Order]: this
// function, on this payload, for this destination. A [Caller] sends it to the function's name. A
// [Node] there calls the function and sends the result to the destination, where [Results] verifies
// it and tells who has ordered it. The sender learns that its chunk has been taken over when the destination has taken
// the result over, and not before. So if a node fails its chunks go to another node, and the
// destination still receives each result once. If the function fails on a chunk, the sender
// receives the reason.
//
// The order prevents a node from sending anything in the name of a host that has not ordered it.
// The result itself has to be trusted: senders choose whose functions they use.
//
// [Program] runs a function as a separate program, which reads the payload from standard input and
// writes the result to standard output, in limited time and memory. [Builtins] are part of sluice.
//
// Start reading at [Order], then [Node.Run].
package compute
