package drift

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/sluice-net/sluice/internal/lograte"
)

// Count says how often a thing was not as declared.
type Count struct {
	Thing string `json:"thing" doc:"What was not as declared"`
	Times uint64 `json:"times" doc:"Differences from the declaration since the program's start"`
	// Last is when the latest difference was found.
	Last time.Time `json:"last" doc:"When the latest difference was found"`
	// Error says why the thing is not as declared now, or cannot be compared. It is empty if all
	// differences were restored.
	Error string `json:"error,omitempty" doc:"Why it could not be restored; empty if it was"`
}

// Counts records the differences that one program has found, and reports them in its log. It is
// safe for concurrent use.
type Counts struct {
	log *slog.Logger

	mu     sync.Mutex
	things map[string]*record
}

type record struct {
	Count
	lines *rate.Limiter
}

const (
	// linesAtOnce and lineInterval bound the lines of the log about one thing.
	linesAtOnce  = 3
	lineInterval = 10 * time.Minute
	// maxThings bounds the things with a name of their own. Programs have fewer.
	maxThings = 64
)

// NewCounts returns Counts that report to a log.
func NewCounts(log *slog.Logger) *Counts {
	return &Counts{log: log, things: map[string]*record{}}
}

// Record records the result of a comparison: the number of differences, and why they were not
// restored or why the thing could not be compared. A comparison without either ends an earlier
// error.
func (c *Counts) Record(thing string, differences int, err error, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.things[thing]
	if r == nil {
		if differences == 0 && err == nil || len(c.things) >= maxThings {
			return
		}
		r = &record{Count: Count{Thing: thing}, lines: rate.NewLimiter(rate.Every(lineInterval), linesAtOnce)}
		c.things[thing] = r
	}
	if r.Error = ""; err != nil {
		r.Error = err.Error()
	}
	if differences == 0 && err == nil {
		return
	}
	r.Times += uint64(differences)
	if differences > 0 {
		r.Last = now
	}
	if !r.lines.AllowN(now, 1) {
		return
	}
	switch {
	case err != nil && differences == 0:
		c.log.Error("something that this program has declared could not be compared with its declaration", "thing", thing, "error", lograte.Shorten(err))
	case err != nil:
		c.log.Error("something is not as this program has declared it, and could not be restored", "thing", thing, "times", r.Times, "error", lograte.Shorten(err))
	default:
		c.log.Warn("another program has changed or removed something that this one has declared: it was restored", "thing", thing, "times", r.Times)
	}
}

// List returns the counts of all things that have differed, or could not be compared, in the order
// of their names.
func (c *Counts) List() []Count {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Count
	for _, r := range c.things {
		out = append(out, r.Count)
	}
	slices.SortFunc(out, func(a, b Count) int { return strings.Compare(a.Thing, b.Thing) })
	return out
}

// Total returns the number of all differences.
func Total(all []Count) (n uint64) {
	for _, c := range all {
		n += c.Times
	}
	return n
}

// collector exports counts as a metric.
type collector struct {
	desc *prometheus.Desc
	list func() []Count
}

// NewCollector returns the metric drift_total of a program, whose metrics begin with
// "sluice_" and subsystem.
func NewCollector(subsystem string, list func() []Count) prometheus.Collector {
	return &collector{list: list, desc: prometheus.NewDesc(prometheus.BuildFQName("sluice", subsystem, "drift_total"),
		"Differences of what the program has declared on its machine from the declarations, by thing.", []string{"thing"}, nil)}
}

// Describe implements prometheus.Collector.
func (m *collector) Describe(to chan<- *prometheus.Desc) { to <- m.desc }

// Collect implements prometheus.Collector.
func (m *collector) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.list() {
		to <- prometheus.MustNewConstMetric(m.desc, prometheus.CounterValue, float64(c.Times), c.Thing)
	}
}
