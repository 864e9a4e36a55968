// Package trace computes what the rules of a network do to a packet: which rule of which owner
// handles it in each switch, why no other rule does, how the packet is changed on its path, and
// where it ends. Start reading with [Run].
//
// Rules are data here: the ledger's, a test's, or those read from a switch. A packet is a set of
// match fields. [Parse] reads one from the words that ovs-ofctl and ovs-appctl ofproto/trace
// use.
package trace
