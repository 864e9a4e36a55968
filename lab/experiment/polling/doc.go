// Package polling is a controller that finds large connections by reading counters in turn, as
// Hedera has it (Al-Fares et al., NSDI 2010): a peer to hold further subflows and samples against,
// on the same core and beside the same rules by destination.
//
// Counters of single connections need rules of single connections: so each connection comes to the
// controller, and gets a rule at the switch where it enters, out of a port that a hash chooses of
// those that are as near. What a reading shows to be large gets a path of its own.
//
// [Controller] does all of it; [Controller.Messages] says what it has cost.
package polling
