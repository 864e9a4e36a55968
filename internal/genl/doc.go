// Package genl sends requests of generic netlink by the netlink package's sockets. It has a Message
// of its own, because that package's nl.Genlmsg is a struct of two bytes that is written as four
// bytes. The kernel wants the last two bytes of the header to be zero (struct genlmsghdr,
// linux/genetlink.h), but they would be the bytes that follow the struct in memory.
//
// [Find] finds the number of a [Family], to which requests with a [Message] are sent. [Attributes]
// reads the answers.
package genl
