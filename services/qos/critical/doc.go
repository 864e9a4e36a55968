// Package critical places critical flows where the bandwidth they require is available,
// keeps it promised to them, and moves them when it no longer is.
//
// The mechanism is that of chapter 3 of the QoS dissertation of 2018. An operator defines
// critical traffic by match and rate, and the first packet of each flow comes to the
// controller. The flow takes the shortest path whose every link has the rate available
// (algorithm 1), or, if there is none, default forwarding. The differences:
//
//   - The rate of an accepted flow is promised at once (package reserve), and a share of
//     it in the reverse direction for acknowledgements. Two flows of one
//     polling interval are never promised the same capacity.
//   - Of several shortest paths, the one that leaves most at its narrowest link is taken.
//   - The link to the destination host counts, too.
//   - A flow that is accepted passes a meter of its rate where it enters, so that what it
//     sends beyond harms only itself, and is reported.
//   - A flow that is not accepted is recorded with the reason. Its rules
//     forward it along the path of fewest hops, through a meter on every link between
//     switches that keeps it from using what is promised there. The accepted flows of the
//     dissertation fell below half of their rate because nothing limited the others.
//   - A flow is moved when a link of its path fails, and when a link fills with unlimited
//     traffic so that the promise cannot be kept there; make before break if the old path
//     still works.
//   - A flow that was not accepted is tried again at each reading of the counters, the
//     oldest first, so that waiting flows get released capacity. If its definition says to
//     decide once, it is not tried again, and flows that arrive later get the capacity.
//   - The promise to a TCP connection is released when both sides have closed it, not
//     only when it has been silent.
//
// The store holds what an operator has defined and where flows are placed, so that rules
// and promises are the same after a restart.
//
// Start reading at Service: it finds flows among first packets, handles changes, owns every
// goroutine and ends with its Run. A table holds the flows, each of which guards its own
// state. A planner finds paths for them and enters promises into the book. A writer writes
// their rules and meters, and a guard those of links. A placer does all of that for one
// flow, one change at a time. A puntInstaller makes switches send first packets to the
// controller. Pure functions compute rules and records.
package critical
