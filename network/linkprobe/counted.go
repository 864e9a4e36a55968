package linkprobe

import (
	"fmt"

	"github.com/sluice-net/sluice/network/diagnosis"
)

// The faults of what switches count, and of how they hand packets in.
const (
	Uncounted diagnosis.Fault = "uncounted" // a switch's counters stand still
	PuntsLost diagnosis.Fault = "punts-lost"
)

// Counters are what the switches at a way's ends have counted while its frames were under
// way: packets that left by the sending port and came in by the receiving one, of whatever
// kind, and those that the rule has seen by which the way's frames are handed in. What a
// switch does not tell is nil.
type Counters struct {
	Left, Came, Matched *uint64
}

// Counted gives a way what the switches have counted.
func (w *Way) Counted(c Counters) { w.counters = c }

const (
	// surely is how many frames have to arrive before a counter that has counted none of
	// them is not believed, and lostAtLeast how many must be missing to be told.
	surely      = 5
	lostAtLeast = 3
	// quietly is for how many of a way's frames its ports may have counted other packets
	// before nothing is concluded from them.
	quietly = 10
)

// counted judges what the switches have counted.
func (w *Way) counted() (out []diagnosis.Finding) {
	c := w.counters
	still := func(n *uint64) bool { return w.came >= surely && n != nil && *n == 0 }
	const remedy = "loads, idle times of rules, and links that stand by what they carry are read from counters: see how often the switch reads its hardware's, and whether newer firmware counts"
	if still(c.Left) {
		out = append(out, w.finding(Uncounted, diagnosis.Warn, fmt.Sprintf("%d frames have left by %v, which has counted none", w.came, w.From), remedy))
	}
	if still(c.Came) {
		out = append(out, w.finding(Uncounted, diagnosis.Warn, fmt.Sprintf("%d frames have come in by %v, which has counted none", w.came, w.To), remedy))
	}
	if still(c.Matched) {
		out = append(out, w.finding(Uncounted, diagnosis.Warn, fmt.Sprintf("%d frames were handed in by a rule of switch %v that has counted none", w.came, w.To.Switch), remedy))
	}
	if m := c.Matched; m != nil && *m <= uint64(w.Sent()) && *m >= uint64(w.came+lostAtLeast) {
		out = append(out, w.finding(PuntsLost, diagnosis.Fail, fmt.Sprintf("switch %v had %d frames to hand in, of which %d came", w.To.Switch, *m, w.came),
			"look for a limit of the packets that it may send to its controller (control plane policing, rate limits of packet-in), and raise it"))
	}
	return out
}

// where says, of frames that do not arrive, as far as one can tell between which counters
// they are lost; empty if one cannot.
func (w *Way) where() string {
	c, sent := w.counters, uint64(w.Sent())
	lost := sent - uint64(w.came)
	if c.Left == nil || c.Came == nil || lost < lostAtLeast || *c.Left+*c.Came == 0 || *c.Left > quietly*sent {
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
