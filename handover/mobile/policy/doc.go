// Package policy chooses the interface that a mobile device uses.
//
// It is a function from what is known of the interfaces to a choice, with as
// little memory as hysteresis needs: a usable interface is left for a better one
// only if that one has been better by a margin for a while, and not soon after
// another move. An interface that is not usable any more is left at once.
package policy
