// Package delayline carries Ethernet links between two TAP devices and gives them the rate, queue,
// delay, jitter and loss of a real line, on kernels that have no netem.
//
// A frame read from one TAP is lost or accepted. An accepted frame waits in the queue until the
// line has serialised it, and is written to the other TAP one propagation delay later. Frames keep
// their order. Where an end is a host the TAP carries 64 KiB super-packets (IFF_VNET_HDR with TCP
// segmentation offload), and every parameter still applies to the MSS-sized packets inside them.
// Where an end is a switch port, super-packets are cut into frames that fit the MTU and have
// complete checksums.
//
// One process carries any number of links. Start runs it as a copy of the current executable, and
// Dial returns its client, which changes parameters and reads statistics while traffic flows.
//
// Start reading at line, which decides what happens to a frame without any I/O, and then at loop.
package delayline
