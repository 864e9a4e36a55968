// Package ledger keeps what every owner wants in the switches, and computes
// what has to be sent.
//
// It is pure logic. Applying a program gives a [Change]: a list of operations
// that turn the previous state into the new one, and nothing more. Whoever sends
// them reports back with Confirm or Rollback; a rollback is again a list of
// operations. When a switch connects, Reconcile compares what it lists with
// what is wanted.
//
// Default forwarding has too many rules, and too little time for each, to keep
// them as general rules: [Flows] holds them in compact form.
package ledger
