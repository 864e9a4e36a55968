// Package soak runs all services at once in one lab for minutes, with the real
// programs: short connections and long transfers through SOS, a device that
// moves, classes and critical flows, while programs of every kind are killed, links
// flap, and a hostile switch, hostile hosts and strangers do their worst. Every byte
// is checked.
//
// What fails is either explained by a kill that happened at that time in that
// part of the network, or a fault: see [incident]. At the end the switches' rules
// must be those of the controller's ledger, and memory and goroutines flat. The
// kills come in an order that follows from a seed, which is printed.
package soak
