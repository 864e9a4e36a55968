// Package cli holds the commands of sluice-lab: networks on one machine, and what is
// measured and shown in them. Controller, agents and daemons in such a network are processes
// of the other program, sluice.
package cli
