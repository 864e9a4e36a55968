package critical

import (
	"fmt"
	"time"

	"github.com/sluice-net/sluice/services/qos/flowpath"
)

// Record is a flow as the API and events show it.
type Record struct {
	ID         string         `json:"id"`
	Definition string         `json:"definition" doc:"The critical traffic that it belongs to"`
	Flow       string         `json:"flow" example:"tcp 10.0.0.1:40000 > 10.0.0.2:5001"`
	State      State          `json:"state" enum:"placing,accepted,oversubscribed,best-effort" doc:"accepted: it is promised its rate. oversubscribed: it is, and a link cannot keep that now; reason says which. best-effort: it is promised nothing; reason says why"`
	Reason     string         `json:"reason,omitempty" doc:"Why nothing is promised to it; or, of an accepted flow, what is wrong"`
	Rate       uint64         `json:"rate_bits_per_second" doc:"What it requires"`
	Reverse    uint64         `json:"reverse_rate_bits_per_second" doc:"What it requires in the reverse direction"`
	Throughput uint64         `json:"sent_bits_per_second" doc:"What it sent at the last reading of its counters"`
	Excess     uint64         `json:"excess_bits_per_second,omitempty" doc:"The part of it that is more than the flow was promised: its first switch drops it, unless reason says otherwise"`
	Bytes      uint64         `json:"bytes" doc:"What it has sent"`
	Path       []flowpath.Hop `json:"path"`
	Since      time.Time      `json:"since"`
	Accepted   time.Time      `json:"accepted,omitzero" doc:"When it was accepted"`
	Moves      int            `json:"moves" doc:"How often it was given another path"`
	Closed     bool           `json:"closed,omitempty" doc:"Both sides have ended its connection: nothing is promised to it any more"`
}

// record returns the record of the flow.
func (f *flow) record() Record {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := Record{
		ID: f.id, Definition: f.Definition, Flow: f.Header.String(), State: f.State, Reason: f.Reason, Rate: f.Rate, Reverse: f.Reverse,
		Throughput: f.counter.Rate, Bytes: f.counter.Bytes, Since: f.Since, Accepted: f.Accepted, Moves: f.Moves, Path: flowpath.HopsOf(f.Hops), Closed: f.closed == closedBoth,
		Excess: f.excess,
	}
	switch {
	case f.State != StateAccepted:
	case f.excess > 0 && f.Unmetered[forward]:
		r.Reason = fmt.Sprintf("it sends %d bit/s more than its %d, and its first switch takes no meter to hold it", f.excess, f.Rate)
	case f.excess > 0:
		r.Reason = fmt.Sprintf("it sends %d bit/s more than its %d, which its first switch drops", f.excess, f.Rate)
	}
	if f.State == StateAccepted && f.pressure != "" {
		r.State, r.Reason = StateOversubscribed, f.pressure
	}
	return r
}

// Flows returns the flows, the oldest first.
func (s *Service) Flows() []Record {
	out := []Record{}
	for _, f := range s.flows.all(func(*flow) bool { return true }) {
		out = append(out, f.record())
	}
	return out
}
