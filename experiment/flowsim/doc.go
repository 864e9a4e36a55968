// Package flowsim simulates transfers as flows of a rate, not as packets: what each link gives
// to each flow follows from who else is there, and changes only when a flow begins, ends, gets
// a further subflow or takes another way.
//
// Rates are max-min fair among subflows: none can have more without one that has no more than
// it having less, which is so if each has a bottleneck, a full link on which none has more
// (Bertsekas and Gallager, Data Networks, section 6.5.2). A connection has the sum of its
// subflows. That is what plain congestion control of each subflow comes to, and upstream Linux
// has no other for MPTCP. Coupled control (RFC 6356) would take less on links that subflows of
// one connection share; the further ones are there to share none.
//
// rates has the subflows on their links, and finds the rates anew where something has changed;
// Sim has the transfers and the time.
package flowsim
