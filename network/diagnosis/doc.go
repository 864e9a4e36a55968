// Package diagnosis holds the results of an examination of the network: fault, place, remedy.
// Package linkprobe looks for faults of links; this package checks what is known about switches
// and hosts. Start reading with [Finding].
//
// The package makes decisions only; it sends and reads nothing itself.
package diagnosis
