// Package loadgen loads a controller with packet-ins, as cbench does: many
// switches on real connections, each with hosts that send to one another.
//
// [Run] is the generator. Every packet-in carries a sequence number, and an
// answer is the packet-out that brings the packet back, so that lost, doubled
// and reordered answers are seen. In throughput mode each switch keeps a window
// of packets under way; in latency mode one.
//
// [Compare] runs the generator against this controller, ovs-testcontroller and
// os-ken, one after the other on the same machine, and measures the CPU time of
// the controller's process alone.
package loadgen
