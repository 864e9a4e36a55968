// Package probe finds out whether an interface leads anywhere, how long the way to
// the gateway takes, and how many of the latest tries were lost.
//
// Probes are sent each interval, and on demand: when traffic has run and nothing is
// heard for 20 ms, and then each 7 ms until something is. Four unanswered ones in a
// row are a death, more where the way has lost some before. So a death under traffic
// is noticed within 60 ms where the round trip takes 10, and costs no probes while
// packets come in, and one without traffic within the interval and 60 ms. (BFD's
// demand mode, RFC 5880 section 6.6, and TCP's tail loss probe, RFC 8985 section 7,
// work alike.) An interface that is not in use is probed each 5 s, and on demand.
//
// On an interface in use a probe is an ICMP echo request of the device's to the
// gateway: its answer shows that the way works which the device's packets take, as
// far as the gateway. Where the gateway does not answer that, and on an interface
// that is not in use, it is an ARP request without a sender's address (RFC 5227),
// which claims nothing. The network answers that one if the place has a way to the
// border ports at all.
package probe
