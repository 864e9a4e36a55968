// Package trace tells what the rules of a network do to a packet: which rule of
// which owner handles it in each switch, why no other does, what is changed on
// the way, and where it ends.
//
// Rules are data here: the ledger's, a test's, or those read from a switch. The
// packet is a set of match fields. [Parse] reads one from the words that
// ovs-ofctl and ovs-appctl ofproto/trace use.
package trace
