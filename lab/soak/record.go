package soak

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// record collects the events of a soak and prints them at once. It is safe for concurrent use.
type record struct {
	began time.Time

	mu        sync.Mutex
	out       io.Writer
	order     []string // names of the loads in order of their first result
	loads     map[string]*tally
	incidents []incident
	events    map[string]int // how often each kind of harm was done that must have no effect
}

// tally holds the results of a load.
type tally struct {
	part     part
	right    int   // connections, transfers or moves that succeeded
	bytes    int64 // bytes that were checked
	failures []failure
}

// failuresPrinted bounds the failures of one load that are printed.
const failuresPrinted = 10

func newRecord(out io.Writer) *record {
	return &record{began: time.Now(), out: out, loads: map[string]*tally{}, events: map[string]int{}}
}

// logf prints a line with the time since the beginning.
func (r *record) logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logfLocked(format, args...)
}

func (r *record) logfLocked(format string, args ...any) {
	fmt.Fprintf(r.out, "%7s  %s\n", time.Since(r.began).Truncate(100*time.Millisecond), fmt.Sprintf(format, args...))
}

// load returns the tally of a load. The caller holds the lock.
func (r *record) load(name string, p part) *tally {
	t := r.loads[name]
	if t == nil {
		t = &tally{part: p}
		r.loads[name] = t
		r.order = append(r.order, name)
	}
	return t
}

// right counts successes of a load.
func (r *record) right(load string, p part, n int, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.load(load, p)
	t.right += n
	t.bytes += bytes
}

// successes returns the number of successes of the loads so far.
func (r *record) successes(loads ...string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range loads {
		if t := r.loads[name]; t != nil {
			n += t.right
		}
	}
	return n
}

// fail records a failure. It prints the first failures of each load.
func (r *record) fail(f failure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.load(f.load, f.part)
	t.failures = append(t.failures, f)
	if len(t.failures) <= failuresPrinted {
		r.logfLocked("%s: %s after %v: %v", f.load, f.kind, f.at.Sub(f.began).Truncate(time.Millisecond), f.err)
	}
}

// event counts harm that must have no effect.
func (r *record) event(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events[name]++
}

// begin records a kill, and returns its number for end.
func (r *record) begin(i incident) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	i.from = time.Now()
	r.incidents = append(r.incidents, i)
	r.logfLocked("kill %s %s", i.program, i.name)
	return len(r.incidents) - 1
}

// end records that a killed program is usable again.
func (r *record) end(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := &r.incidents[n]
	i.until = time.Now()
	r.logfLocked("%s %s is back after %v", i.program, i.name, i.until.Sub(i.from).Truncate(time.Millisecond))
}
