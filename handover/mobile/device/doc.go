// Package device changes what a mobile device has of its own, namely links,
// addresses, routes, kernel settings and the list of name servers, and puts all
// of it back.
//
// Each change is written to a [Journal] before it is made. A daemon that was
// killed leaves the journal behind, and the next one undoes what is in it: each
// undoing may be repeated, and finds nothing to do where things are as they were.
package device
