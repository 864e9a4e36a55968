// Package listen opens listening sockets, whose Accept survives temporary errors.
//
// [New] wraps a listener so that Accept waits and tries again after such errors. [Unix] opens a
// Unix socket to which only some users of the machine may connect.
package listen
