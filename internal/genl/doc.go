// Package genl makes requests of generic netlink, with the netlink package's sockets. That has a
// message of its own, nl.Genlmsg, which takes two bytes and writes four: what lies behind it in
// memory, in a field that the kernel wants to be zero (struct genlmsghdr, linux/genetlink.h).
//
// [Find] finds the family that a [Message] is for; [Attributes] reads what is answered.
package genl
