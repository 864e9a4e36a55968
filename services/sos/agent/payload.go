package agent

// segmentPayload estimates what a connection's segments have carried lately. Between chunks
// there are frames of a few bytes, and a connection that has rested has sent nothing else.
type segmentPayload struct{ segments, bytes float64 }

// payloadDecay is the weight that earlier updates keep at each update.
const payloadDecay = 0.8

// record adds what has been sent between two updates.
func (p *segmentPayload) record(before, now *ConnStats) {
	p.segments = payloadDecay*p.segments + float64(now.DataSent-before.DataSent)
	p.bytes = payloadDecay*p.bytes + float64(now.BytesSent-before.BytesSent)
}

// average returns the mean payload of a segment; a full segment carries full bytes.
func (p *segmentPayload) average(full int) float64 {
	if p.segments < 1 {
		return float64(full)
	}
	return min(p.bytes/p.segments, float64(full))
}
