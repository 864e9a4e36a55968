// Package gatewayapi defines the messages between Cinema's gateways and their controller, in
// addition to those of all agents (package control). Start reading at Channel and Wanted in
// types.go.
//
// The controller assigns channels to an ingress gateway:
//
//	PUT    /v1/channels/{name}        Channel: add or change a channel
//	DELETE /v1/channels/{name}        remove a channel
//	POST   /v1/channels/{name}/burst  Burst: send the current group of pictures to one address
//
// An egress gateway gets no such requests. It requests channels for its viewers through the
// controller's API, with its certificate:
//
//	GET  /api/v1/cinema/lineup  Lineup: the channels, and the gateways
//	POST /api/v1/cinema/wanted  Wanted -> Granted: the channels of one viewer
//
// The controller answers with these errors:
//
//   - 403 if a password is wrong.
//   - 409 if the network has no path with room, or the gateway is full, or nothing is copied to
//     the gateway because the controller does not hear from it.
//   - 422 if the request is invalid.
//   - 429 if there are too many requests at once, or too many passwords were wrong.
//   - 503 if the switches do not have the rules within two seconds, or the controller has just
//     been started. The gateway should then ask again.
//
// A change of channel is one request, for the new channel and the old one, in this order. The
// grant has a number. When the viewer sees the new channel, the gateway records that with the
// number, and the controller ends the old channel, unless it has granted the viewer something
// else since. A gateway may also request the new channel alone.
//
// An egress gateway's events repeat the channels of all its viewers, so that a restarted
// controller learns them without asking.
//
// # On the wire
//
// A channel is one UDP flow of RTP, from the ingress gateway's data address and a port that
// only this channel uses, to [MediaPort] at an address that no host has. Switches copy it
// along a tree and, before an egress gateway, rewrite the destination to the port that a
// viewer has there. The source is unchanged, so it identifies the channel of a datagram.
package gatewayapi
