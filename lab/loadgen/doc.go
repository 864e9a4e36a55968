// Package loadgen loads a controller with packet-ins, as cbench does: it simulates many switches on
// real connections, each with hosts that send packets to one another.
//
// [Run] is the generator. Every packet-in carries a sequence number, and an answer is the
// packet-out that returns the packet, so that lost, duplicated and reordered answers are detected.
// In throughput mode each switch keeps a window of packets in flight, in latency mode one packet.
//
// [Compare] runs the generator against this controller, ovs-testcontroller and os-ken, one after
// the other on the same machine, and measures the CPU time of the controller's process alone.
package loadgen
