// Package lease is the DHCP client of a mobile device.
//
// A mobile device has one IP address wherever it is. The client asks for that address with the hardware
// address of the virtual interface (chaddr), in frames with the address of the interface by which they
// leave (eth_src). chaddr shows which device asks, and eth_src by which interface. A request from a new
// place moves the device, so the client requests a known address at once (INIT-REBOOT). Every message
// is signed anew if the device has a key.
//
// [Client.Attach] gets a lease on an interface, [Client.Extend] extends it, and [Client.Release]
// releases it. They block until they are done and start no goroutine.
package lease
