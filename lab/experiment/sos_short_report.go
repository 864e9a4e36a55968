package experiment

import (
	"fmt"
	"strings"
	"time"

	"github.com/sluice-net/sluice/lab/testbed"
)

// shortRateBound is the smallest rate of short connections a second through SOS, with
// shortRateAtOnce connections open at once over a round trip of shortRateRTT.
const (
	shortRateBound  = 300
	shortRateAtOnce = 50
	shortRateRTT    = 80 * time.Millisecond
)

// shortOutcome holds the results of a cell's connections.
type shortOutcome struct {
	shortCell
	all     []testbed.ShortConnection
	took    time.Duration
	carried int      // sessions that the controller has set up meanwhile
	past    []string // reasons why agents have not carried others
}

// failed counts the connections that failed, by kind and in all.
func (o shortOutcome) failed() (byKind map[testbed.Failure]int, sum int) {
	byKind = map[testbed.Failure]int{}
	for _, c := range o.all {
		if c.Failure != testbed.NoFailure {
			byKind[c.Failure]++
			sum++
		}
	}
	return byKind, sum
}

// rate returns the number of connections a second that succeeded.
func (o shortOutcome) rate() float64 {
	_, failed := o.failed()
	return float64(len(o.all)-failed) / o.took.Seconds()
}

// times returns the durations of the connections that succeeded, in ms.
func (o shortOutcome) times() (all []float64) {
	for _, c := range o.all {
		if c.Failure == testbed.NoFailure {
			all = append(all, inMS(c.Took))
		}
	}
	return all
}

func (o shortOutcome) String() string {
	_, failed := o.failed()
	times := o.times()
	return fmt.Sprintf("%d of %d failed; %.0f a second; p50 %.0f, p99 %.0f, max %.0f ms", failed, len(o.all), o.rate(),
		median(times), quantile(times, 0.99), quantile(times, 1))
}

func (o shortOutcome) save(raw *CSV) error {
	for i, c := range o.all {
		client, text := "", ""
		if c.Local.IsValid() {
			client = c.Local.String()
		}
		if c.Err != nil {
			text = c.Err.Error()
		}
		if err := raw.Row(o.rtt, o.closes, o.atOnce, o.way, i, client, c.Began.UTC().Format(time.RFC3339Nano), c.Took, c.Failure, text); err != nil {
			return err
		}
	}
	return nil
}

func shortResult(all []shortOutcome) *Result {
	r := &Result{Network: fmt.Sprintf("two switches, one link of %.0f Mbit/s between them, MTU 1500; the one of %v loses %s %%", shortLine(0).Rate/1e6, shortRateRTT, percent(shortLine(shortRateRTT).Loss))}
	table := Table{
		Title:   fmt.Sprintf("Connections for one file of %d bytes each; ms from the SYN until the client is done", shortSize),
		Columns: []string{"RTT", "closes first", "at once", "way", "connections", "carried", "failed"},
	}
	for _, kind := range testbed.Failures() {
		table.Columns = append(table.Columns, string(kind))
	}
	table.Columns = append(table.Columns, "a second", "p50 ms", "p99 ms", "max ms")
	failures, count, past := 0, 0, 0
	var reasons []string
	for _, o := range all {
		byKind, failed := o.failed()
		row := []any{o.rtt, o.closes, o.atOnce, o.way, len(o.all), o.carried, failed}
		for _, kind := range testbed.Failures() {
			row = append(row, byKind[kind])
		}
		times := o.times()
		table.Add(append(row, fmt.Sprintf("%.0f", o.rate()), ms1(median(times)), ms1(quantile(times, 0.99)), ms1(quantile(times, 1)))...)
		if o.way == waySOS {
			count += len(o.all)
			failures += failed
			past += max(0, len(o.all)-o.carried)
			reasons = append(reasons, o.past...)
		}
	}
	r.Tables = []Table{table}
	if count > 0 {
		r.Claim(failures == 0, fmt.Sprintf("0 of %d connections through SOS fail", count), "%d failed (%.2g %%)", failures, 100*float64(failures)/float64(count))
		r.Claim(past == 0, "every one of them is carried by agents", "%s", strings.Join(append([]string{fmt.Sprintf("%d went past them", past)}, reasons...), "; "))
	}
	shortRates(r, all)
	r.Note("A connection that does not end within 20 s counts as timed out. Every answer is compared byte by byte, and says for whom the server took the client and which number it asked for. A client that closes first does not wait for the server to close too, but a connection whose server does not has failed. Rates count what ended well.")
	return r
}

// shortRates adds claims about the rate, for each closing order.
func shortRates(r *Result, all []shortOutcome) {
	for _, closes := range []string{closesServer, closesClient} {
		rates := map[string]float64{}
		for _, o := range all {
			if o.rtt == shortRateRTT && o.atOnce == shortRateAtOnce && o.closes == closes {
				rates[o.way] = o.rate()
			}
		}
		if sos, ok := rates[waySOS]; ok {
			r.Claim(sos >= shortRateBound, fmt.Sprintf("at least %d a second with %d at once at %v, the %s closing first", shortRateBound, shortRateAtOnce, shortRateRTT, closes),
				"%.0f (direct %.0f)", sos, rates[wayDirect])
		}
	}
}
