// Package plugin is the controller's service for devices that move. It answers
// their DHCP and ARP at every edge switch, sees in a DHCP request from a new
// place that a device has moved there, and writes the rules that carry the
// device's packets between the border ports of the network and that place.
//
// What is decided elsewhere is decided by pure packages: who a device is and
// which address it has (registry), what a DHCP message means (dhcp), which rules
// in which order (route), where a device will be next (predict). Service does the
// I/O around them: it takes packets from the switches, changes the rules, keeps
// records of every handover, and owns all goroutines.
//
// The packet-in handler never waits: what takes time is put into a work queue, by
// each device, so that what happens to one device happens in order and what
// happens to different devices happens at once.
//
// What does not concern a device of this service is left to the rest of the
// chain, as if the service were not there.
package plugin
