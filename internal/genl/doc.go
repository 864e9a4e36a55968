// Package genl sends requests of generic netlink by the netlink package's sockets. It does not use
// nl.Genlmsg, that package's own message, because its header has two bytes of which four are
// written: the other two, which the kernel wants to be zero, are what follows in memory (struct
// genlmsghdr, linux/genetlink.h).
//
// [Find] finds the number of a [Family], to which requests with a [Message] are sent. [Attributes]
// reads the answers.
package genl
