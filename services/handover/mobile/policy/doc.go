// Package policy chooses the interface that a mobile device uses.
//
// It is a function from the state of the interfaces to a choice, with as little memory as
// hysteresis needs. A usable interface is left for a better one only if that one has been better
// by a margin for a while, and not soon after another move. An interface that is no longer usable
// is left at once.
package policy
