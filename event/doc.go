// Package event is the controller's event bus: it records what happened, in order, with
// identifiers that never repeat and never decrease, also across restarts. Start reading with
// bus.go.
//
// An identifier has 53 bits: the upper 21 count the starts of the controller (the epoch, kept in
// the store), the lower 32 count the events since that start, without gaps. A consumer that
// receives n followed by n+1 knows that it has missed nothing, and one that sees the epoch
// change knows that the controller was restarted. Identifiers of 53 bits survive JSON readers
// that only have floating point numbers.
//
// Publishing never blocks: the bus keeps a ring of the latest events, and each subscription
// reads the ring at its own pace. A subscription that falls behind the ring is told how many
// events it has missed.
package event
