// Package device changes the state of a mobile device, namely links, addresses, routes, kernel
// settings and the list of name servers, and restores all of it.
//
// Each change is written to a [Journal] before it is made. A killed daemon leaves the journal
// behind, and the next one undoes its changes. Undoing a change may be repeated; it does nothing
// if the earlier state is restored already.
package device
