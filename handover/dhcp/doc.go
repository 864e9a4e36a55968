// Package dhcp is the DHCP server of a mobility network (RFC 2131), as a function
// from a message and the port where it came in to a reply and to what it means: a
// request from a new place is a device that has moved.
//
// A device has one address, whichever of its interfaces asks. The client's
// hardware address in the message (chaddr) and the frame's source may differ, as
// they do when a virtual interface speaks through a radio, but both have to belong
// to the device. Whether the device may be moved to where the message came in is
// for its class to say: by a signature in the message (option 224), by the port, or
// by nothing more.
//
// The server is the only one of its network and answers with authority. It does no
// I/O but the registry's one write for each lease; frames are parsed by [Parse] and
// built by [Decision.Frame], for packet-ins and packet-outs.
package dhcp
