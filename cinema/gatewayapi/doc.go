// Package gatewayapi is what Cinema's gateways and their controller say to each other beyond
// what all agents do (package control).
//
// The controller tells an ingress gateway which channels it has:
//
//	PUT    /v1/channels/{name}        Channel: have it, or have it like that
//	DELETE /v1/channels/{name}        have it no longer
//	POST   /v1/channels/{name}/burst  Burst: send the current group of pictures to one address
//
// An egress gateway is told nothing. It says what it wants, by the controller's API, with its
// certificate:
//
//	GET  /api/v1/cinema/lineup  Lineup: the channels, and the gateways
//	POST /api/v1/cinema/wanted  Wanted -> Granted: the channels of one viewer
//
// The controller answers with 403 where a password is wrong, with 409 where the network has no
// way with room, or the gateway is full or has nothing copied to it because the controller does
// not hear from it, with 422 where the request makes no sense, with 429 where too much is asked
// at once or too many passwords were wrong, and with 503 where the switches do not have the rules
// within two seconds, or it has just been started: then asking again helps.
//
// What it wants for all its viewers is also in its events, so that a controller that has been
// started again knows it without asking.
//
// # On the wire
//
// A channel is one UDP flow of RTP, from the ingress gateway's data address and a port that
// is the channel's alone, to [MediaPort] at an address that no host has. Switches copy it
// along a tree and, before an egress gateway, rewrite the destination to the port that a
// viewer has there. The source stays, so a datagram says of which channel it is.
package gatewayapi
