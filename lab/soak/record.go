package soak

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// record is what happens during a soak, told to the user at once. It is safe for
// concurrent use.
type record struct {
	began time.Time

	mu        sync.Mutex
	out       io.Writer
	order     []string // of loads
	loads     map[string]*tally
	incidents []incident
	events    map[string]int // how often what was done that must not be noticed
}

// tally is what a load has done.
type tally struct {
	part     part
	right    int   // connections, transfers or moves that were right
	bytes    int64 // checked
	failures []failure
}

// failuresPrinted bounds what is printed of one load.
const failuresPrinted = 10

func newRecord(out io.Writer) *record {
	return &record{began: time.Now(), out: out, loads: map[string]*tally{}, events: map[string]int{}}
}

// say prints a line with the time since the beginning.
func (r *record) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sayLocked(format, args...)
}

func (r *record) sayLocked(format string, args ...any) {
	fmt.Fprintf(r.out, "%7s  %s\n", time.Since(r.began).Truncate(100*time.Millisecond), fmt.Sprintf(format, args...))
}

// load returns the tally of a load; the caller holds the lock.
func (r *record) load(name string, p part) *tally {
	t := r.loads[name]
	if t == nil {
		t = &tally{part: p}
		r.loads[name] = t
		r.order = append(r.order, name)
	}
	return t
}

// right notes what went well.
func (r *record) right(load string, p part, n int, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.load(load, p)
	t.right += n
	t.bytes += bytes
}

// rightOf is how often loads were right so far.
func (r *record) rightOf(loads ...string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range loads {
		if t := r.loads[name]; t != nil {
			n += t.right
		}
	}
	return n
}

// fail notes what went wrong. The first of each load are printed.
func (r *record) fail(f failure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.load(f.load, f.part)
	t.failures = append(t.failures, f)
	if len(t.failures) <= failuresPrinted {
		r.sayLocked("%s: %s after %v: %v", f.load, f.kind, f.at.Sub(f.began).Truncate(time.Millisecond), f.err)
	}
}

// event counts something that nobody may notice.
func (r *record) event(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events[name]++
}

// begin notes a kill, and returns its number for end.
func (r *record) begin(i incident) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	i.from = time.Now()
	r.incidents = append(r.incidents, i)
	r.sayLocked("kill %s %s", i.program, i.name)
	return len(r.incidents) - 1
}

// end notes that what was killed is usable again.
func (r *record) end(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := &r.incidents[n]
	i.until = time.Now()
	r.sayLocked("%s %s is back after %v", i.program, i.name, i.until.Sub(i.from).Truncate(time.Millisecond))
}
