// Package handover is the controller's service for devices that move. It answers their DHCP and ARP
// at every edge switch. A DHCP request from a new port tells it that a device has moved there, and
// it then writes the rules that carry the device's packets between the border ports of the network
// and that port.
//
// Pure packages make the decisions: which device it is and which address it has (registry), what a
// DHCP message means (dhcp), which rules are written in which order (route), and where a device
// will be next (predict). Service does the I/O around them. It takes packets from the switches,
// changes the rules, keeps a record of every handover, and owns all goroutines.
//
// The packet-in handler never waits: work that takes time goes into a queue with one key for each
// device. Work for one device runs in order, work for different devices runs concurrently.
//
// Packets that do not concern a device of this service are left to the rest of the chain.
//
// Start reading at Service in service.go, then follow a DHCP message from
// packetHandler.HandlePacketIn (packets.go) over handleDHCP (dhcp.go) to
// placement.serveAt (place_serve.go).
package handover
