// Package proxy carries TCP connections between two names, so that programs which know nothing of names go
// on while hosts move.
//
// One side listens ([Proxy.Serve]): each connection that it accepts is one to the other side's name, which
// connects to a server in its place. What either end of a connection sends goes in chunks, each a kind (1
// byte), the number of the connection (8, drawn by who opens it) and what belongs to the kind; numbers are
// big-endian.
//
//	kind      what belongs to it
//	1 open    nothing
//	2 data    how many bytes have gone before (8), and bytes of the connection
//	3 credit  how many more bytes may be sent (4); nothing is sent before the first
//	4 end     how many bytes have gone before (8): its sender sends no more
//	5 reset   nothing: the connection is over
//
// A side takes chunks at once, and keeps at most [Window] bytes of a connection that its TCP has not taken
// yet: one that is slow holds up no other. A chunk that is missing, as its time was over before its receiver was
// there, ends its connection. Start reading at [Proxy.Run].
package proxy
