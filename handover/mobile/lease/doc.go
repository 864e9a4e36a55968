// Package lease is the DHCP client of a mobile device.
//
// A mobile device has one address wherever it is. The client asks for it with
// the hardware address of the virtual interface (chaddr), by frames that bear
// the address of the interface they leave by (eth_src): the first says who asks,
// the second where. Asking again from a new place is what moves the device, so a
// known address is asked for at once (INIT-REBOOT), and every message is signed
// afresh if the device has a key.
//
// [Client.Attach] gets a lease on an interface, [Client.Extend] keeps it, and
// [Client.Release] gives it back. They block until they are done and start no
// goroutine.
package lease
