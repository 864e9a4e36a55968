// Package agent is the SOS agent: ordinary software near an end host that carries announced
// TCP connections over several connections to the agent near the other end.
//
// Start reading at Agent and session.
//
// # The path of a byte
//
// The end host's bytes are spliced into a pipe, at most a chunk of them (source). The chunk
// gets a number and is spliced to one of the connections to the peer (conn). A second pipe
// that shares its pages retains it until the peer has confirmed it. The peer splices the
// chunk into a pipe as it arrives, and passes it on to its end host when its number is the
// next (sink). The payload never enters user space, except under TLS.
//
// # Who waits for whom
//
// A writer takes a chunk only when its connection has room. One writer at a time reads the
// end host; it keeps the turn as long as its connection accepts the bytes at once. The
// connections are always read, because credit limits what the peer may send (window). So
// acknowledgements and heartbeats never wait behind payload that a slow end host does not
// accept, and a session holds at most p*q*c bytes in each direction.
//
// # How sessions end
//
// A FIN or RST of an end host is the last chunk of its direction, so it arrives after the
// bytes before it. The unconfirmed chunks of a lost connection are sent again on another
// one, and the connection is dialled again. A lost peer ends the session with RST at this
// end. Until a session has ended well, the linger time of its end-host socket is zero, so
// that even the death of the process causes an RST.
//
// Urgent data (RFC 6093) is carried in line; the urgent mark is not.
//
// The control server (control) is the controller's only access to the agent. Sessions do
// not need the controller once they run.
package agent
