// Package wire is the protocol that two SOS agents speak on their data connections. It
// handles bytes and numbers; the agent handles sockets. Start reading at Header and
// Opening.
//
// A connection starts with an Opening from the side that dialled and an Answer from the other. Each
// side proves that it holds the session's key. An opening is valid for one use, because its
// generation must be above every earlier one of the same connection index. A side that cannot prove
// the key gets no answer.
//
// After that both sides send frames: a header of HeaderSize bytes, and after a Data header
// the payload. Each direction numbers its chunks from 0, over all connections of the
// session:
//
//	Data     chunk Number, Length bytes follow; FlagFIN and FlagRST end the direction
//	Ack      the sender of this frame has received Number chunks on this connection
//	Window   the receiver of this frame may send chunks that cost Number in all; it is the heartbeat too
//	Reset    the session is over; Number is the Cause
//	Release  this side is done with the connection for this session
//
// A chunk that is not acknowledged when its connection is lost is sent again on another connection.
// Acks count the chunks received on one connection. Because a connection keeps the order of bytes,
// the count identifies these chunks. After a Release in both directions the connection is idle, and
// the Opening of another session is the next message on it.
//
// Ordered and Unconfirmed implement the two sides' rules for order and repetition.
package wire
