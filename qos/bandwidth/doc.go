// Package bandwidth places critical flows where the bandwidth they require is
// available, keeps it promised to them, and moves them when it no longer is.
//
// The mechanism is that of chapter 3 of the QoS dissertation of 2018: an operator
// defines critical traffic by match and rate; the first packet of each flow comes to
// the controller; the flow goes by the shortest path whose every link has the rate
// available (its algorithm 1), or, if there is none, by default routing. What is
// different:
//
//   - What is accepted is promised at once (package reserve), for the flow, and a
//     share of it in the reverse direction for acknowledgements. Two flows of one
//     polling interval are never promised the same capacity.
//   - Of several shortest paths, one is taken that leaves most at its narrowest link.
//   - The link to the destination host counts, too.
//   - A flow that is accepted passes a meter of its rate where it enters, so that what it
//     sends beyond is nobody else's loss; and it is told.
//   - A flow that is not accepted is recorded with the reason. Its rules lead it by
//     the path of fewest hops, through a meter on every link between switches that
//     leaves what is promised there to those it is promised to. The accepted flows of
//     the dissertation fell below half of their rate because nothing held the others.
//   - A flow is moved when a link of its path dies, and when a link fills with
//     traffic that nobody holds back so that the promise cannot be kept there; make
//     before break where the old path still works.
//   - One that was not accepted is tried again at each reading of the counters, the
//     oldest first, so that capacity which comes free goes to who waits for it; unless
//     its definition says to decide once, which leaves it to those that come later.
//   - What a TCP connection was promised is free when both sides have closed it, not
//     only when it has been silent.
//
// What an operator has defined and where flows are placed stands in the store: after a
// restart rules and promises are as before.
//
// Service finds flows among first packets and does what follows from changes; it owns every
// goroutine and ends with its Run. A table has the flows, each of which guards its own state;
// a planner finds them their places, with the book; a writer writes their rules and meters,
// and a guard those of links; a placer does all of that for one flow, one change at a time;
// an asker has first packets come up. Rules and records are computed by pure functions.
package bandwidth
