// Package mobilityfirst is the controller's side of MobilityFirst: it learns from hellos (package frame) where
// names are, and makes paths between them.
//
// A host that has chunks for a name broadcasts a path request, which a switch sends up. The service gives
// the path between the two names a label in each direction, a VLAN tag, has the switches lead frames that
// bear it ([PathRules]), and hands the request with both labels to the name's host alone, whose
// answer goes that way already. From then on nothing of the path reaches the controller until its lease is
// to be renewed. A request for a name that nobody has said hello for, or for which no path can be made, goes
// on as if there were no service.
//
// Where a name is at several places, one of them is asked: the one to which the fewest paths lead, and that is nearest; all of them
// if chunks are to go to each ([frame.Multicast]).
//
// A label stands for two names at two places. Rules match it with the Ethernet addresses of both ends and
// the port that it comes in by, so no host uses another's, and one that is used too long leads to the same
// host. What bears one that is not there ends at the switch.
//
// Nothing is stored: after a start, rules from before stay until all leases that they were made
// for are over, and by then hosts have asked again.
//
// Start reading at [Service.HandlePacketIn], then [Service.request] and paths.go.
package mobilityfirst
