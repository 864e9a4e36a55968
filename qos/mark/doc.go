// Package mark is what the latency service and the classifier beside a userspace
// datapath say to each other through the switch's database.
//
// The service writes on a queue's row by which DSCP its packets are to be marked and
// which one they get back. The classifier installs that, and answers on the row of the
// port's QoS with the list of all that it has installed there. Only what is in the list
// does the service have Open vSwitch mark: a mark that nobody would take off again
// never leaves a switch.
//
// Probes of links have a queue of their own too, which bears [TagProbes]. The classifier knows
// them by what they are, so that there is nothing to answer.
//
// The answer says what the kernel holds. It outlives the classifier, as the filters do.
package mark
