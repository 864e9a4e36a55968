// Package servicetest provides fakes for the tests of services, also of services outside this
// repository. A [Network] does only what a test tells it to do, and a [Ledger] keeps rules instead
// of writing them. [Start] runs a service on fake switches, and restarts it. Package network/fake
// has more for switches.
package servicetest
