// Package agent is the SOS agent, a program near an end host. It carries the TCP connections that a
// controller announces over several connections to the agent near the other end.
//
// Start reading at Agent and session.
//
// # The path of a byte
//
// The end host's bytes are spliced into a pipe, at most a chunk of them (source). The chunk gets a
// number and is spliced to one of the connections to the peer (conn). A second pipe, which shares
// the pages of the first, retains the chunk until the peer has confirmed it. The peer splices the
// chunk into a pipe as it arrives, and passes it on to its end host when all earlier chunks have
// been passed on (sink). The payload never enters user space, except under TLS (copy mode).
//
// # Who waits for whom
//
// A writer takes a chunk only when its connection has room. One writer at a time reads the end
// host; it keeps the turn as long as its connection accepts the bytes at once. The connections are
// always read, because credit limits how much the peer may send (window). So acknowledgements and
// heartbeats never wait behind payload that a slow end host does not accept, and a session holds at
// most p*q*c bytes in each direction (p connections, q chunks of c bytes for each).
//
// # How sessions end
//
// A FIN or RST of an end host is carried as the last chunk of its direction, so it arrives after
// the bytes before it. The unconfirmed chunks of a lost connection are sent again on another
// connection, and the lost one is dialled again. If the peer is lost, the agent ends the session
// with a RST to its own end host. Until a session has ended in order, the linger time of its
// end-host socket is zero, so that even the death of the process causes an RST.
//
// Urgent data (RFC 6093) is carried as ordinary data, without the urgent mark.
//
// The controller reaches the agent only through the control server (control). Once sessions run,
// they do not need the controller.
package agent
