// Package probe measures whether a gateway can be reached by an interface, how
// long it takes, and how many of the latest tries were lost.
//
// A probe is an ARP request without a sender's address (RFC 5227): it claims
// nothing, so it can be sent on an interface that the device does not use now.
package probe
