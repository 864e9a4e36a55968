// Package stats turns port counters into rates, link loads and their history.
//
// A counter is read somewhere between the sending of the request and the coming
// of the reply, so a sample's time is the middle of the two, and a rate's
// interval is the time between two such middles, never the nominal polling
// interval. A counter that has gone back has wrapped if the port's age has grown,
// and has been reset if not; a reset gives no rate rather than a wrong one.
//
// Counters come from several sources, each with rates of its own: two readings
// that went different ways are never subtracted from each other.
package stats
