// Package wire is the protocol that two SOS agents speak on their data
// connections. It knows bytes and numbers; sockets are the agent's business.
//
// A connection starts with an Opening from the side that dialled and an Answer
// from the other. Each proves that it holds the session's key, and an opening
// is good for one use, because its generation must be above every earlier one
// of the same connection index. Whoever cannot prove the key gets no answer.
//
// After that both sides send frames: a header of HeaderSize bytes, and after a
// Data header the payload. Each direction numbers its chunks from 0, over all
// connections of the session:
//
//	Data     chunk Number, Length bytes follow; FlagFIN and FlagRST end the direction
//	Ack      the sender of this frame has received Number chunks on this connection
//	Window   the receiver of this frame may send chunks that cost Number in all; it is the heartbeat too
//	Reset    the session is over; Number is the Cause
//	Release  this side is done with the connection for this session
//
// A chunk that is not acknowledged when its connection dies is sent again on
// another one. Acks count chunks on one connection, whose order is that of the
// bytes, so a count says it all. After a Release in both directions the
// connection is idle, and the next thing on it is the Opening of another session.
//
// Ordered and Unconfirmed hold the two sides' rules for order and repetition.
package wire
