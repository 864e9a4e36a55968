// Package route decides which rules carry a device's packets between the borders
// of a mobility network and the places where the device is, and in which order
// the switches are rewritten when it moves.
//
// It is pure: it sees a topology and what is wanted, and answers with a program
// for the ledger of package network. Packets to a device follow an in-tree, one
// next hop for each switch, from every border to its edge port; packets from it
// follow one path to the nearest border. A device that is about to move can be
// served at two places at once (bicast): one switch, the join, sends a copy along
// a branch to the second place.
//
// The order of a change is consistent: in every state between two waves, and for
// every part of a wave that has reached its switches, packets arrive at the old
// place or at the new one, and none goes round in a circle.
package route
