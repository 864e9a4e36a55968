// Package domain moves devices between operators. Each operator's controller runs its own domain
// and controls only its own switches. Domains that are joined by a link between two of their
// border ports (a peering) tell each other over mutually authenticated HTTPS which device comes,
// and then pass its packets over the peering.
//
// # The steps
//
// Origin S is the domain that the device leaves, receiver R the one to which it comes:
//
//	t0           S sends and receives the device's packets
//	t1  notify   S to R: this device, with these addresses, heads for you
//	t2           R prepares its branch and says so; S sends the packets both ways;
//	    ready    S to R: your branch gets packets now. Until then R leaves the device's
//	             DHCP unanswered
//	t3           R answers with the address that the device has
//	t4  complete R to S: it is here
//	t5           S sends to R alone and tells the domain from which it gets the packets
//
// Without notice (reactive), R asks all neighbours at once who has the unknown device (query), and
// claims the device from the neighbour that has it (claim). From t3 on the steps are the same. A
// withdraw revokes an earlier message.
//
// # The chain
//
// A domain keeps one Record for each visitor, for each own device that is in another domain, and for
// each device that is changing domains. In it, upstream is the neighbour from which the device's
// packets come (none at home), and downstream the one to which they go (none where the device is). A
// device that goes from A to B and then to C makes a chain of these domains. A device that comes back
// to a domain of the chain shortens the chain, and the part that is no longer needed is withdrawn. If
// the device's packets pass through R already, R branches them itself and the origin sends no copies.
//
// # Trust
//
// A neighbour is trusted with little. It has one certificate of role neighbour, issued by us,
// whose name is its name here; nothing else of our API is open to it. It can offer only devices
// whose IP address lies in the prefixes configured for it and whose addresses belong to no other
// device here. It can take or give back only a device that it was offered, that passes through it,
// or that proves, by a request signed with the device's key, that it is there. Each message is
// accepted only once. A refused message changes nothing, and is logged and counted.
//
// A request in the visited domain does not prove by itself that the visitor sent it. The visitor's
// key is with its home, which confirms (verify) whether the visitor has sent a request at a place
// where it was not before. While the home cannot be asked the visitor stays where it is. A
// signature does not name a domain: a domain that hears a device's request, and passes it on
// faster than the domain for which it was meant, can claim the device, if there is an agreement
// with that domain, too.
//
// Unlike the announcement of the dissertation, the announcement of this package does not list the
// hosts with which the device communicates: the rules match the device's own address and nothing else.
//
// Start reading at Origin.Announce (t1, t2), Receiver.onNotify and Origin.onComplete; the reactive
// variant is in reactive.go.
package domain
