// Package stats turns port counters into rates, link loads and their history. Start reading with
// rates.go; loss.go compares the two ends of a link.
//
// A counter is read at some time between the sending of the request and the arrival of the
// reply, so a sample's time is the middle of the two. A rate's interval is the time between two such
// middles, never the nominal polling interval. A counter that has decreased has wrapped
// if the port's age has grown, and has been reset if it has not; a reset gives no rate rather
// than a wrong one.
//
// Counters come from several sources, and each has its own rates: readings that arrived in
// different ways are never subtracted from each other.
package stats
