// Package policy chooses the interface that a mobile device uses.
//
// The choice depends on the state of the interfaces, and on as little memory as hysteresis needs. The
// device leaves a usable interface only for one that has been better by a margin for a while, and not
// soon after another move. It leaves an interface that is no longer usable at once.
package policy
