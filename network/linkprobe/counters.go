package linkprobe

import (
	"fmt"

	"github.com/sluice-net/sluice/network/diagnosis"
)

// The faults of a switch's counters and packet-ins.
const (
	Uncounted diagnosis.Fault = "uncounted" // a switch's counters do not change
	PuntsLost diagnosis.Fault = "punts-lost"
)

// Counters holds what the switches at the ends of a Direction counted while its frames were in flight.
// Left counts packets of any kind that left by the sending port, and Came those that arrived at the
// receiving port. Matched counts the packets that matched the rule which passes the Direction's
// frames to the controller. A value is nil if the switch does not report it.
type Counters struct {
	Left, Came, Matched *uint64
}

// Counted sets the numbers that the switches have counted.
func (w *Direction) Counted(c Counters) { w.counters = c }

const (
	// minArrived is the number of frames that must arrive before a counter of zero counts as a
	// fault. minLost is the number of frames that must be missing before counters are compared to
	// find out where.
	minArrived = 5
	minLost    = 3
	// maxForeign is the largest number of packets that the sending port may have counted for each
	// frame of the Direction. With more packets of others, the ports' counters do not show where
	// frames are lost.
	maxForeign = 10
)

// judgeCounters returns the faults that the counters show.
func (w *Direction) judgeCounters() (out []diagnosis.Finding) {
	c := w.counters
	still := func(n *uint64) bool { return w.arrivedFrames >= minArrived && n != nil && *n == 0 }
	const remedy = "loads, idle times of rules, and links that stand by what they carry are read from counters: see how often the switch reads its hardware's, and whether newer firmware counts"
	if still(c.Left) {
		out = append(out, w.finding(Uncounted, diagnosis.Warn, fmt.Sprintf("%d frames have left by %v, which has counted none", w.arrivedFrames, w.From), remedy))
	}
	if still(c.Came) {
		out = append(out, w.finding(Uncounted, diagnosis.Warn, fmt.Sprintf("%d frames have come in by %v, which has counted none", w.arrivedFrames, w.To), remedy))
	}
	if still(c.Matched) {
		out = append(out, w.finding(Uncounted, diagnosis.Warn, fmt.Sprintf("%d frames were handed in by a rule of switch %v that has counted none", w.arrivedFrames, w.To.Switch), remedy))
	}
	if m := c.Matched; m != nil && *m <= uint64(w.Sent()) && *m >= uint64(w.arrivedFrames+minLost) {
		out = append(out, w.finding(PuntsLost, diagnosis.Fail, fmt.Sprintf("switch %v had %d frames to hand in, of which %d came", w.To.Switch, *m, w.arrivedFrames),
			"look for a limit of the packets that it may send to its controller (control plane policing, rate limits of packet-in), and raise it"))
	}
	return out
}

// lossPlace returns a text that says between which counters missing frames are lost. The text is
// empty if that cannot be decided.
func (w *Direction) lossPlace() string {
	c, sent := w.counters, uint64(w.Sent())
	lost := sent - uint64(w.arrivedFrames)
	if c.Left == nil || c.Came == nil || lost < minLost || *c.Left+*c.Came == 0 || *c.Left > maxForeign*sent {
		return ""
	}
	switch {
	case *c.Left+lost/2 < sent:
		return fmt.Sprintf("; of %d frames the sending port has counted %d: the sending switch keeps them", sent, *c.Left)
	case *c.Came+lost/2 < *c.Left:
		return fmt.Sprintf("; the sending port has counted %d packets, the receiving one %d: they are lost in between", *c.Left, *c.Came)
	case c.Matched != nil && *c.Matched+lost/2 < sent:
		return fmt.Sprintf("; the receiving port has counted %d packets, its switch's rules %d: filters or address learning of that switch come before its rules", *c.Came, *c.Matched)
	}
	return ""
}
