// Package event is the controller's event bus: what happened, in order, under
// identifiers that never repeat and never go back, also across restarts.
//
// An identifier holds two numbers: the upper 21 bits of its 53 count the
// starts of the controller (the epoch, kept in the store), the lower 32 bits
// count the events since that start, without a gap. So a consumer that sees n
// followed by n+1 knows that it missed nothing, and one that sees the epoch
// change knows that the controller was restarted. 53 bits survive JSON
// readers that only have floating point numbers.
//
// Publishing never blocks: the bus keeps a ring of the latest events, and each
// subscription reads the ring at its own pace. A subscription that falls
// behind the ring is told how many events it missed.
package event
