// Package polling is a controller that finds large connections by reading counters periodically, as
// Hedera does (Al-Fares et al., NSDI 2010). Experiments compare further subflows and samples with
// it, on the same core and beside the same rules by destination.
//
// Counters of single connections need rules for single connections. So each connection reaches the
// controller, and gets a rule at the switch where it enters, out of a port that a hash chooses from
// the nearest ones. A connection that a reading shows to be large gets a path of its own.
//
// [Controller] implements all of it; [Controller.Messages] counts the messages.
package polling
