// Package cinema is Cinema in the controller: it manages the channels, the ingress gateways to
// which they are assigned, the viewers, and the trees by which channels reach them.
//
//   - A [Channel] is declared by a [ChannelSpec]; a kit.Reconciler keeps the channels, and
//     calls treeManager.install (trees.go) for each. That acts on a plan, which is computed
//     without side effects (plan.go).
//   - Ingress gateways are told which channels are assigned to them (sources.go, sync.go).
//     Egress gateways say which channels their viewers watch, by a request and by their
//     events (egress.go). Both change [viewers] in viewers.go.
//   - A change of a viewer reconciles its channels at once; changes of one channel that come
//     while it is being reconciled are combined into one change of the rules.
//   - After a restart nothing is written before gateways have reported their viewers
//     (awaitNetwork in service.go), so that switches keep copying what they copied.
//
// Start reading at New in service.go.
package cinema
