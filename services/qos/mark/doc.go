// Package mark defines what the service for traffic classes (package classes) and the classifier
// beside a userspace datapath (package classifier) tell each other through the switch's database.
// Start reading at Entry.
//
// The service writes into a queue's row the DSCP with which the queue's packets should be marked,
// and the DSCP that they get back before they leave the switch. The classifier installs a filter
// that does so, and answers in the row of the port's QoS with the list of all entries that it has
// installed there. The service makes Open vSwitch mark only packets whose entry is in the list, so
// that no mark leaves a switch without being removed.
//
// Probes of links have a queue of their own too, which has the tag [TagProbes]. The
// classifier recognises probes by their headers, so it need not answer.
//
// The answer describes the filters in the kernel. It stays in the database when the classifier
// ends, and the filters stay as well.
package mark
