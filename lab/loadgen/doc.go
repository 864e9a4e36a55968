// Package loadgen loads a controller with packet-ins, as cbench does: it simulates many switches on
// real connections, each with hosts that send packets to one another.
package loadgen
