// Package servicetest has what services work with as fakes, for their tests, also yours: a
// [Network] in which happens what a test says, and a [Ledger] that keeps rules instead of
// writing them. [Start] runs a service on fake switches, and restarts it. network/fake has more
// for switches.
package servicetest
