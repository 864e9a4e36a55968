// Package egress is Cinema's egress gateway: channels come in as RTP in UDP datagrams, and go
// out to viewers' browsers by WebRTC, which they ask for by WHEP, or by a WebSocket.
//
//	POST   /whep/{channel}               an SDP offer -> 201, an answer, and where the session is
//	DELETE /whep/sessions/{id}           the viewer leaves
//	PUT    /whep/sessions/{id}/channel   {"channel": "news"} -> {"zap": "23ms", "timestamp": 1234}, when it is seen
//	GET    /ws/{channel}                 a WebSocket -> whole pictures and sound, see below
//	GET    /channels                     what there is to see, and the gateways
//	GET    /                             the site for people; /live is where they publish
//
// A viewer has one UDP port of its own, to which the switches send the channels that it wants.
// A change of channel is made before the break: both channels come, the stream goes over to
// the new one at its key frame (package media), and then the old one is given up. The viewer's
// session, its transport and its player stay as they are.
//
// A gateway that is full answers an offer with a redirect (307) to one with room. Browsers do not
// take a password along to another origin: a page asks for no redirects (redirect: "manual"), and
// asks another gateway of the lineup itself.
//
// # By WebSocket
//
// The player asks for the protocol "sluice.cinema.1" and, if the channel has a password, for
// "bearer." and the password in base64url without padding (RFC 4648, section 5). Binary messages
// are pictures and sound, whole ones, as WebCodecs takes them:
//
//	byte 0     1: sound, 2: a key frame, 4: the first picture of another channel; or their sum
//	byte 1-8   time since the stream began, in microseconds, big-endian
//	from 9 on  H.264 in the format of Annex B, or a packet of Opus
//
// Text messages are JSON. The player's are two:
//
//	{"request": 7, "channel": "news", "password": "..."}  change the channel
//	{"request": 8, "again": true}                         the picture again, from its key frame on
//
// The gateway's first one says what the session is, by which it can be changed by HTTP, too. The
// others are answers:
//
//	{"session": "/whep/sessions/0123..."}
//	{"request": 7, "zap": "23ms", "timestamp": 1234567}   of the first picture, in microseconds
//	{"request": 7, "refused": {"title": "...", "status": 404, "field": "channel", "detail": "..."}}
//
// A refusal without a request is of the player as such, and is followed by the end, with the code
// 4000 and the status. If the gateway is full, "location" beside it is one with room.
//
// A player that takes what comes too slowly misses pictures until the next key frame.
//
// # The controller
//
// The gateway asks the controller what is to be sent where ([Controller]). Without the
// controller those who watch go on watching.
//
// What viewers can cause is bounded, for each client's address and in all. Start with [Run].
package egress
