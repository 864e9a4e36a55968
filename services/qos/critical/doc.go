// Package critical places critical flows on paths where the bandwidth that they require is
// available, reserves that bandwidth for them (it is promised to them), and moves a flow when its
// path can no longer provide it.
//
// The mechanism is that of chapter 3 of the QoS dissertation of 2018. An operator defines critical
// traffic by match and rate, and the first packet of each flow is sent to the controller. The flow
// takes the shortest path whose every link has the rate available (algorithm 1), or, if there is
// none, default forwarding. This package differs from the dissertation in these points:
//
//   - The rate of an accepted flow is promised at once (package reserve), and a share of
//     it in the reverse direction for acknowledgements. Two flows of one
//     polling interval are never promised the same capacity.
//   - Of several shortest paths, a flow takes the one that leaves most at its narrowest link.
//   - The link to the destination host counts, too.
//   - An accepted flow passes a meter of its rate where it enters. Traffic beyond the rate
//     therefore harms only the flow itself, and is reported.
//   - A flow that is not accepted is recorded with the reason. Its rules
//     forward it along the path of fewest hops, through a meter on every link, which
//     limits it to the bandwidth that is not promised there. The accepted flows of the
//     dissertation fell below half of their rate because nothing limited the others.
//   - A flow is moved when a link of its path fails, and when a link fills with unlimited
//     traffic so that the promise cannot be kept there. If the old path still works, the new
//     rules are installed before the old ones are removed.
//   - A flow that was not accepted is tried again at each reading of the counters, the
//     oldest first, so that waiting flows get released capacity. If its definition says to
//     decide once, it is not tried again, and flows that arrive later get the capacity.
//   - The promise to a TCP connection is released when both sides have closed it, not
//     only when it has been silent.
//
// The store holds the definitions of the operator and the placements of the flows, so that rules
// and promises are the same after a restart.
//
// Start reading at Service. It finds flows among first packets, handles changes, owns every
// goroutine and ends with its Run. A table holds the flows, each of which guards its own state. A
// planner finds paths for them and enters promises into the book of promises. A writer writes the
// flows' rules and meters, and a guard writes the meters of links. A placer uses all of these for
// one flow, one change at a time. A puntInstaller makes switches send first packets to the
// controller. Pure functions compute rules and records.
package critical
