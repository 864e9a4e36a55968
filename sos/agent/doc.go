// Package agent is the SOS agent: ordinary software near an end host that
// carries announced TCP connections over several connections to the agent near
// the other end.
//
// # The way of a byte
//
// The end host's bytes are spliced into a pipe, at most a chunk of them
// (source). The chunk gets a number and goes, by splice again, to one of the
// connections to the peer (conn); a second pipe that shares its pages keeps it
// until the peer has confirmed it. The peer splices the chunk into a pipe as it
// comes and passes it on to its end host when its number is the next (sink).
// The payload never enters user space, except under TLS.
//
// # Who waits for whom
//
// A writer takes a chunk only when its connection has room, and one writer at a
// time reads the end host; it keeps the turn as long as its connection takes
// the bytes at once. The connections are always read, because what the peer may
// send is limited by credit (window): so acknowledgements and heartbeats are
// never stuck behind payload that a slow end host does not take, and a session
// holds at most p*q*c bytes each way.
//
// # How sessions end
//
// A FIN or RST of an end host is the last chunk of its direction, so it arrives
// after the bytes before it. A lost connection's unconfirmed chunks are sent
// again on another one, and it is dialled again. A lost peer ends the session
// by RST at this end. Until a session has ended well its end-host socket
// lingers for zero seconds, so that even the death of the process is an RST.
//
// Urgent data (RFC 6093) is carried in line; the urgent mark is not.
//
// The control server (control) is the controller's only way in. Sessions do not
// need the controller once they run.
package agent
