// Package route decides which rules carry a device's packets between the borders of a mobility
// network and the places where the device is, and in which order the switches are rewritten when
// the device moves.
//
// The package is pure: from a topology and a Want it computes a Plan with rules for the ledger of
// package network. Packets to a device follow an in-tree, with one next hop for each switch, from every
// border to the device's edge port. Packets from the device follow one path to the nearest border.
// A device that is about to move can be served at two places at once (bicast): one switch, the
// join, sends a copy along a branch to the second place.
//
// The order of a change is consistent. In every state between two waves, and for every part of a
// wave that has reached its switches, packets arrive at the old place or at the new one, and none
// loops.
//
// Start reading at NewPlan in plan.go and Steps in steps.go.
package route
