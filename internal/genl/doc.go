// Package genl sends requests of generic netlink by the netlink package's sockets. It has a Message
// of its own, because that package's nl.Genlmsg has two bytes of which it writes four. The other
// two, which the kernel wants to be zero, would be whatever follows in memory (struct genlmsghdr,
// linux/genetlink.h).
//
// [Find] finds the number of a [Family], to which requests with a [Message] are sent. [Attributes]
// reads the answers.
package genl
