// Package mobilityfirst is the controller's side of MobilityFirst: it learns from hellos (package
// frame) at which places names are, and sets up paths between them. A place is a switch port
// together with the Ethernet address of a host behind it.
//
// A host that has chunks for a name broadcasts a path request, which its switch sends to the
// controller. The service assigns the path between the two names a label in each direction, a VLAN
// tag, and installs rules that forward frames with that label ([PathRules]). It sends the request
// with both labels only to the name's host, whose answer already uses the path. After that no frame
// of the path reaches the controller until its lease has to be renewed. If no host has said hello
// for the name, or no path is possible, the request continues as if there were no service.
//
// If a name has several places, the request goes to the one for which the sum of its paths and the
// switches on the route is least. If chunks are to go to every place ([frame.Multicast]), the
// request goes to all of them.
//
// A label belongs to two names at two places. Rules match the label together with the Ethernet
// addresses of both ends and the ingress port, so no host can use another's label, and a label that
// is used after its lease still leads to the same host. The switch drops frames with a label that
// is not assigned.
//
// The service stores no paths. After a start, rules from before stay until all leases that they
// were installed for have ended; by then hosts have asked again.
//
// Start reading at [Service.HandlePacketIn], then [Service.request] and paths.go.
package mobilityfirst
