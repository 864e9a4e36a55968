// Package proxy carries TCP connections between two names, so that connections of programs that do
// not know names survive the moves of hosts.
//
// One side listens ([Proxy.Serve]). Each connection that it accepts becomes a connection to the
// other side's name, which connects to a server in its place. Data of both ends are sent in chunks.
// Each chunk consists of a kind (1 byte), the number of the connection (8, drawn at random by the
// side that opens it) and the fields of the kind; numbers are big-endian.
//
//	kind      fields
//	1 open    none
//	2 data    the number of bytes sent before (8), and bytes of the connection
//	3 credit  how many more bytes may be sent (4); nothing is sent before the first
//	4 end     the number of bytes sent before (8): its sender sends no more
//	5 reset   none: the connection has ended
//
// A side takes chunks over immediately, and buffers at most [Window] bytes of a connection that its
// TCP has not taken yet, so a slow connection does not delay others. A missing chunk, whose time
// ended before its receiver was present, ends its connection. Start reading at [Proxy.Run].
package proxy
