// Package latency gives classes of traffic queues of their own on every hop, so that
// their packets do not wait behind those of others.
//
// A class has a priority, a guaranteed and a greatest rate, perhaps a latency that
// its path has to keep, and the descriptions of its flows; its JSON has the names of
// the QoS dissertation's requests (chapter 4). Admission looks for a path for each
// flow, compares the measured latency, and has the book of promises take the
// guaranteed rate on every link and towards every host, or refuses with the hop and
// the number. What is accepted is provisioned in three layers:
//
//   - every port on a class's way has a token bucket of its link's rate, made with the
//     first class or, if so configured, when the switch connects, with a leaf for each
//     class and one for the controller's probes of links (package ovsdb);
//   - rules along the path put the flows' packets into the leaf (set_queue);
//   - where the datapath runs in user space, a packet's queue does not reach the
//     kernel's classes by itself. There Open vSwitch marks the queue's packets with a
//     DSCP, and "sluice classifier" beside the switch maps the mark to the class and
//     gives the packet its own DSCP back (package classifier). Packets are marked when
//     it has said that it does (package mark), so that no mark leaves a switch. Rules
//     take only packets there whose own DSCP is known: that of the flow's description,
//     or 0.
//
// A class is stored when all of that is done. What a controller that is killed leaves
// half done, the next one takes away, because nobody declares it.
//
// The service looks after the effect itself: it compares what the rules have matched
// with what the queues have seen, and says so when a class has silently no effect.
//
// Service does what follows from what is declared and from changes of the network. A table
// has the classes, and its lock guards them; a planner finds their ways, with the book; queues
// are those in the databases; a placer brings one class into the switches, moves it and takes
// it out; a monitor looks after its effect, and a promiser tells carriers of it.
//
// Where a class and a placed critical flow (package bandwidth) match the same packet,
// the class's rule decides, queue and way, because it stands higher in their stage. A flow of
// which the class has all packets is asked to give its promise up.
package latency
