// Package egress is Cinema's egress gateway. It receives channels as RTP in UDP datagrams, and
// sends them to viewers' browsers by WebRTC, negotiated by WHEP, or by a WebSocket.
//
//	POST   /whep/{channel}               an SDP offer -> 201, an answer, and the session's address
//	DELETE /whep/sessions/{id}           the viewer leaves
//	PUT    /whep/sessions/{id}/channel   {"channel": "news"} -> {"zap": "23ms", "timestamp": 1234}, when the picture is seen
//	GET    /ws/{channel}                 a WebSocket -> complete pictures and sound, see below
//	GET    /channels                     the channels and the gateways
//	GET    /                             the web site; /live is the page for producers
//
// A viewer has a UDP port of its own, to which the switches send the channels that it requests.
// A change of channel is make-before-break: both channels arrive, the stream switches to the new
// one at its key frame (package media), and then the old one is given up. The viewer's session,
// its transport and its player do not change.
//
// A full gateway answers an offer with a redirect (307) to one with room. Browsers do not send a
// password along to another origin. So a page should not follow redirects (redirect: "manual"),
// and should ask another gateway of the lineup itself.
//
// # By WebSocket
//
// The player requests the subprotocol "sluice.cinema.1" and, if the channel has a password, also
// "bearer." followed by the password in base64url without padding (RFC 4648, section 5). Binary
// messages are complete pictures and sound, in the form that WebCodecs accepts:
//
//	byte 0     1: sound, 2: a key frame, 4: the first picture of another channel; or their sum
//	byte 1-8   time since the start of the stream, in microseconds, big-endian
//	from 9 on  H.264 in the format of Annex B, or a packet of Opus
//
// Text messages are JSON. The player sends two kinds:
//
//	{"request": 7, "channel": "news", "password": "..."}  change the channel
//	{"request": 8, "again": true}                         repeat the picture from its key frame on
//
// The gateway's first message names the session, which can also be changed by HTTP. The others are
// answers:
//
//	{"session": "/whep/sessions/0123..."}
//	{"request": 7, "zap": "23ms", "timestamp": 1234567}   of the first picture, in microseconds
//	{"request": 7, "refused": {"title": "...", "status": 404, "field": "channel", "detail": "..."}}
//
// A refusal without a request concerns the connection. The gateway then closes it with the code
// 4000 plus the status. If the gateway is full, the message has a "location", a gateway with room.
//
// A player that reads too slowly misses pictures until the next key frame.
//
// # The controller
//
// The gateway requests channels for its viewers from the controller ([Controller]). If the
// controller is away, viewers keep their channels.
//
// What viewers can cause is bounded, for each client's address and in total. Start reading at [Run],
// then at viewer in viewer.go.
package egress
