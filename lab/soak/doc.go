// Package soak runs all services at once in one lab for minutes, with the real programs: short
// connections and long transfers through SOS, a device that moves, classes and critical flows.
// Meanwhile it kills programs of every kind, takes links down, and runs a hostile switch, hostile
// hosts and strangers. Every byte is checked.
//
// A failure is either explained by a kill at that time in that part of the network, or it is a
// fault: see [incident]. At the end the switches' rules must be those of the controller's ledger,
// and memory and goroutines must not have grown. The order of the kills follows from a seed, which
// is printed.
//
// Start reading at Run.
package soak
