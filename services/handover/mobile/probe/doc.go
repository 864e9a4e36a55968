// Package probe measures whether the path by an interface to the gateway works, its round trip,
// and the loss of the latest probes.
//
// Probes are sent each interval, and on demand: when there has been traffic and nothing is
// received for 20 ms, and then every 7 ms until something is received. A path counts as dead after
// four unanswered probes in a row, or more if it has lost some before. If the round trip takes 10 ms, a
// death under traffic is detected within 60 ms, at no cost in probes while packets come in. A death
// without traffic is detected within the interval and 60 ms. (BFD's demand mode, RFC 5880 section 6.6,
// and TCP's tail loss probe, RFC 8985 section 7, are similar.) An interface that is not in use is
// probed every 5 s, and on demand.
//
// On an interface in use a probe is an ICMP echo request from the device to the gateway: the
// answer shows that the path of the device's packets works as far as the gateway. If the gateway
// does not answer echo requests, and on an interface that is not in use, a probe is an ARP request
// without a sender's address (RFC 5227), which claims no address. The network answers the request only
// if the place has a path to the border ports.
//
// Start reading at [Prober.Run]; detector holds the decisions.
package probe
