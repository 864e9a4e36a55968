// Package flowsim simulates transfers as flows with a rate, and not as packets. How much of each
// link a flow gets depends on the other flows, and changes only when a flow begins, ends, gets a
// further subflow or takes another path.
//
// Rates are max-min fair among subflows, by weight: no rate can grow without taking from a subflow
// that has no more for its weight. This holds if each subflow has a bottleneck, which is a full
// link on which no other has more (Bertsekas and Gallager, Data Networks, section 6.5.2). The rate
// of a flow is the sum of its subflows' rates. If each subflow has the weight 1, the rates are
// those of congestion control of each subflow by itself, as in upstream Linux. If the subflows of a
// flow share that weight, they get on one link what a flow without further subflows gets there.
// This is what coupled congestion control does (RFC 6356), which also shifts traffic to other
// paths; weights come close to it if paths are alike.
//
// rates holds the subflows on their links, and finds the rates again after a change. Sim holds the
// transfers and the time. Start reading at Sim.
package flowsim
