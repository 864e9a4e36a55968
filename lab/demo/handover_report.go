package demo

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sluice-net/sluice/lab/testbed"
)

// roamResult holds the effects of one move.
type roamResult struct {
	roamAct
	began   time.Time
	ended   time.Time
	away    time.Duration // how long the radio had no link
	dropped uint64        // packets of all kinds that found a link's queue full
	udp     testbed.StreamReport
	tcp     testbed.PullReport
	goodput []float64 // bit/s in each 100 ms, from a second before the move on
	resets  int
	wrong   bool
}

// bars are blocks of height 0 to 8 eighths of a line.
var bars = []rune(" ▁▂▃▄▅▆▇█")

// sparkline returns values as a row of bars. The largest value is a full bar.
func sparkline(values []float64) string {
	top := 0.0
	for _, v := range values {
		top = max(top, v)
	}
	var b strings.Builder
	for _, v := range values {
		level := 0
		if top > 0 && v > 0 {
			level = max(1, int(v/top*float64(len(bars)-1)+0.5))
		}
		b.WriteRune(bars[level])
	}
	return b.String()
}

// line returns a line about the move, with the download's goodput around it.
func (r roamResult) line() string {
	return fmt.Sprintf("  %s, %s: %s\n    TCP, every 100 ms: |%s|", r.name, r.policy, r.text, sparkline(r.goodput))
}

// printRoam prints a table of all moves.
func printRoam(out io.Writer, results []roamResult) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "  move\tpolicy\tUDP lost\tdoubled\tsilence\tno link\tTCP median\tworst 100 ms\tdips\tresets")
	for _, r := range results {
		fmt.Fprintf(w, "  %s\t%s\t%d of %d\t%d\t%.1f ms\t%.0f ms\t%.1f Mbit/s\t%.1f Mbit/s\t%d\t%d\n", r.name, r.policy,
			r.udp.Lost, r.udp.Sent, r.udp.Doubled, 1000*r.udp.Gap.Seconds(), 1000*r.away.Seconds(), r.tcp.Median/1e6, r.tcp.Least/1e6, r.tcp.Dips, r.resets)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, "  silence: the longest time without a packet; no link: how much of it the radio was between two access points;\n  dips: intervals of 100 ms with less than half of TCP's median")
	return err
}

// roamFaults lists violations of what must hold at any speed. If there are none the demo has shown
// what it promises.
func roamFaults(results []roamResult) []string {
	var all []string
	fault := func(r roamResult, format string, args ...any) {
		all = append(all, r.name+", "+r.policy+": "+fmt.Sprintf(format, args...))
	}
	for _, r := range results {
		if r.resets > 0 {
			fault(r, "the download was reset")
		}
		if r.wrong {
			fault(r, "the download has bytes in the wrong place")
		}
		if r.udp.Received == 0 {
			fault(r, "no packet arrived")
		}
		if r.lossless && r.udp.Lost > 0 {
			fault(r, "%d packets were lost (the links' queues were full for %d)", r.udp.Lost, r.dropped)
		}
		if r.lossless && r.udp.Doubled > 0 {
			fault(r, "%d packets arrived twice", r.udp.Doubled)
		}
	}
	return all
}
