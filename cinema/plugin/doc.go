// Package plugin is Cinema in the controller: which channels there are, which ingress gateway
// has each, who watches them, and the trees by which they get there.
//
//   - A [Channel] is declared, as a [ChannelSpec]; a service.Reconciler keeps them, and asks
//     program (ways.go) for the rules of each.
//   - Ingress gateways are told what they have to have (sources.go, tell.go); egress gateways tell what
//     their viewers want, by a request (wanted.go) and, each second, by their events
//     (egress.go). Both end in the [viewers] of viewers.go.
//   - A change of a viewer is made and the channels concerned are looked at at once; changes
//     of one channel that come while it is worked on are one change of the rules.
//   - After a restart nothing is written before gateways have told of their viewers
//     (settle.go), so that what is copied in the switches goes on being copied.
//
// Start reading at Service in service.go.
package plugin
