// Package servicetest has what services work with as fakes, for their tests, also yours: a
// [Network] in which happens what a test says, and a [Ledger] that keeps rules instead of
// writing them. network/fake has switches for them.
package servicetest
