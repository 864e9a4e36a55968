// Package classes gives classes of traffic queues of their own on every hop, so that their packets
// do not wait behind packets of other traffic.
//
// A class has a priority, a guaranteed and a maximum rate, optionally a latency that its path has
// to meet, and the descriptions of its flows. Its JSON uses the names of the requests in the QoS
// dissertation (chapter 4). Admission looks for a path for each flow, compares the measured
// latency, and enters the guaranteed rate on every link and towards every host into the book of
// promises (package reserve). Otherwise it refuses the class, and names the hop and the rate. An
// accepted class is provisioned in three layers:
//
//   - every port on a class's route has a token bucket with the rate of its link, with a
//     leaf for each class and one for the controller's probes of links (package ovsdb). It
//     is created with the first class or, if so configured, when the switch connects;
//   - rules along the path put the flows' packets into the leaf (set_queue);
//   - where the datapath runs in user space, a packet's queue does not reach the
//     kernel's classes by itself. There Open vSwitch marks the queue's packets with a
//     DSCP, and "sluice classifier" beside the switch maps the mark to the class and
//     restores the packet's own DSCP (package classifier). Packets are marked only after
//     the classifier has confirmed that (package mark), so that no mark leaves a switch.
//     There, rules match only packets whose own DSCP is known: that of the flow's
//     description, or 0.
//
// A class is stored when all of that is done. If a controller is killed before that, the next one
// removes the queues and rules that were installed, because nobody declares the class.
//
// The service checks the effect itself: it compares the packets that rules have matched with those
// that the queues have seen, and reports a class that silently has no effect.
//
// Start reading at Service, which handles declared classes and changes of the network. A table
// holds the classes, and its lock guards them. A planner finds routes for them, and enters promises
// into the book. queues manages the queues in the switches' databases. A placer installs a class in
// the switches, moves it and removes it. A monitor checks its effect. A promiser informs the
// services that carry connections, that is, forward packets of hosts under headers of their own.
//
// Where a class and a placed critical flow (package critical) match the same packet, the class's
// rule decides about queue and path, because it has a higher priority in their stage. A critical
// flow is ended if all of its packets belong to the class. That releases its promise.
package classes
