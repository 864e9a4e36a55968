// Package flowsim simulates transfers as flows of a rate, not as packets: what each link gives
// to each flow follows from who else is there, and changes only when a flow begins, ends, gets
// a further subflow or takes another way.
//
// Rates are max-min fair among subflows, by weight: none can have more without one that has no
// more for its weight having less, which is so if each has a bottleneck, a full link on which
// none has more (Bertsekas and Gallager, Data Networks, section 6.5.2). A flow has the sum of its
// subflows. If each has the weight of 1, that is what congestion control of each subflow by
// itself comes to, as in upstream Linux. If the subflows of a flow have that weight together, a
// flow gets on one link what one without further subflows gets there, as by coupled congestion
// control (RFC 6356), which shifts traffic to other paths besides; what weights give is near to
// that where paths are alike.
//
// rates has the subflows on their links, and finds the rates anew where something has changed;
// Sim has the transfers and the time.
package flowsim
