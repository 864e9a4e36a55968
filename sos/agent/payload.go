package agent

// payload is what a connection's segments have carried lately: between chunks there are frames of a few
// bytes, and one that has rested has sent nothing else.
type payload struct{ segments, bytes float64 }

// lately is how much each look leaves of what those before it have seen.
const lately = 0.8

// sent takes what has been sent between two looks.
func (p *payload) sent(before, now *LinkStats) {
	p.segments = lately*p.segments + float64(now.DataSent-before.DataSent)
	p.bytes = lately*p.bytes + float64(now.BytesSent-before.BytesSent)
}

// average is what a segment carries, of which a full one carries so much.
func (p *payload) average(full int) float64 {
	if p.segments < 1 {
		return float64(full)
	}
	return min(p.bytes/p.segments, float64(full))
}
