// Package dhcp is the DHCP server of a mobility network (RFC 2131). For a message and the port where
// the message came in, it returns a reply and a decision: a request from a new place means that the
// device has moved.
//
// A device has one address, whichever of its interfaces asks. The client's hardware address in the
// message (chaddr) and the frame's source may differ, as they do when a virtual interface sends
// through a radio, but both must belong to the device. The device's class decides whether the
// device may be moved to where the message came in: by a signature in the message (option 224), by
// the port, or without a condition.
//
// The server is the only one of its network and answers authoritatively. Its only I/O is the
// registry's one write for each lease. [Parse] parses frames of packet-ins, and [Decision.Frame]
// builds those of packet-outs.
//
// Start reading at [Server.Handle].
package dhcp
