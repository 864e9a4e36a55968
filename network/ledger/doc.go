// Package ledger keeps the rules, groups and meters that each owner wants in the switches, and
// computes the messages that bring the switches to that state.
//
// It is pure logic and sends nothing. [Ledger.Plan] returns a [Change]: the operations that turn
// the previous state into the new one. Whoever sends them calls Confirm or Rollback afterwards;
// Rollback again returns operations. When a switch connects, [Ledger.Reconcile] compares what
// the switch lists with what is wanted. Start reading with plan.go and reconcile.go.
//
// A *mark* is a rule of the stage "classify": it sets a packet's treatment, such as its queue,
// and the packet goes on to the next table. On a switch with one table the ledger puts a mark's
// actions into the rule of the path that the mark belongs to.
//
// Default forwarding has too many rules, and too little time for each, to keep them as general
// rules: [Flows] holds them in compact form.
package ledger
