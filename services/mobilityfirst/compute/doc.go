// Package compute has functions called on chunks on their way.
//
// A function is a name (GUID), as everything is in MobilityFirst: who has its key may run it, several at the same
// time, and the network leads to one of them. A sender signs an [Order]: this function, on this payload, for this
// destination. A [Caller] sends it to the function's name; a [Node] there calls the function and sends what comes of it
// on to the destination, which [Results] tell whose it is. The sender is told that its chunk is taken when the
// destination has taken the result, and not before: so a chunk whose node dies goes to another node, and the
// destination is given each result once. One that the function fails on comes back to the sender with the reason.
//
// The order keeps a node from sending anything in the name of somebody who has not ordered it. What the function
// makes of the payload is trusted to be what it should be: senders choose whose functions they use.
//
// [Program] runs a function as a program of its own, which reads a payload from standard input and writes the result to
// standard output, in bounded time and memory. [Builtins] come with it.
//
// Start reading at [Order], then [Node.Run].
package compute
