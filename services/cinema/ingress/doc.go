// Package ingress is Cinema's ingress gateway. Producers send it their streams. The gateway sends
// each channel that its controller has assigned to it in the house format (package media), as
// one flow of UDP datagrams from a port that only this channel uses.
//
// A channel's producer is a client that publishes by WHIP (RFC 9725) at the gateway's public
// listener, or what the channel's source names: a file, a test pattern, a server, or an address at
// which the gateway waits for a client. The gateway forwards the H.264 and Opus of a WHIP client
// unchanged, and has ffmpeg transcode a source. ffmpeg itself reads files, test patterns and servers.
// At an address for clients, by RTMP, SRT or UDP, the gateway receives the stream itself (receiver.go)
// and writes it to ffmpeg (relay.go). So it decides who publishes, and notices whether the stream has
// picture and sound.
//
//	POST   /whip/{channel}        an offer -> 201, an answer, and the session's address
//	DELETE /whip/sessions/{id}    the end of the session
//
// A datagram goes from its producer through channel.feed: it is parsed, counted against the
// channel's rate, cached with its group of pictures, and sent.
//
// Producers are assumed to be hostile. Connections, sessions, wrong passwords, bodies and
// everything that is kept are bounded, for each source address and in total.
//
// Start reading at Gateway in gateway.go, then at channel in channel.go.
package ingress
