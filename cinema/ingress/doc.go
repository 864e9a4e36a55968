// Package ingress is Cinema's ingress gateway. Producers send it their streams, and each
// channel that its controller has told it of goes out in the house format (package media) as
// one flow of UDP datagrams, from a port that is the channel's alone.
//
// A channel's producer is either a child process of the gateway, ffmpeg, that reads what the
// channel's source names and transcodes it, or somebody who publishes by WHIP (RFC 9725) at
// the gateway's public listener, whose H.264 and Opus are sent on as they are.
//
//	POST   /whip/{channel}        an offer -> 201, an answer, and the session's address
//	DELETE /whip/sessions/{id}    the end of it
//
// A datagram goes from its producer through channel.feed: it is parsed, counted against what
// the channel may send, kept with its group of pictures, and sent.
//
// What comes from producers is hostile. Connections, sessions, wrong passwords, bodies and
// everything that is kept are bounded, for each source address and in all.
package ingress
