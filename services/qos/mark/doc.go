// Package mark defines what the latency service and the classifier beside a userspace
// datapath tell each other through the switch's database. Start reading at Entry.
//
// The service writes into a queue's row the DSCP with which its packets are to be marked,
// and the one that they get back. The classifier installs that, and answers in the row of
// the port's QoS with the list of everything that it has installed there. The service makes
// Open vSwitch mark only packets whose entry is in the list, so that no mark leaves a
// switch without being removed.
//
// Probes of links have a queue of their own too, which has the tag [TagProbes]. The
// classifier recognises probes by their headers, so it need not answer.
//
// The answer describes what the kernel holds. It survives the classifier, as the filters
// do.
package mark
