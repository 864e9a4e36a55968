package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// event is a line of go test -json, see go doc test2json; ImportPath is for what is built.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64 // seconds
}

// failure is a test that failed, or a package of which no single test did.
type failure struct {
	pkg, test, output string
	certain           bool // the race detector has spoken, or it did not end: that is never luck
}

// skip is a test that was skipped, as lab.TestDelay.
type skip struct{ test, output string }

// timed is a test that is no part of another, and how long it took, its waits for its turn
// included.
type timed struct {
	test    string
	seconds float64
}

// keepSlowest is how many of them are told.
const keepSlowest = 15

// results is what a run of go test came to.
type results struct {
	failures []failure
	skips    []skip
	slowest  []timed // the longest first
	packages int
	tests    int
}

// collector makes results of events, and prints how it goes on.
type collector struct {
	out    io.Writer
	module string // what stands before a package's folder
	output map[[2]string]*strings.Builder
	failed map[string]bool // packages with a test that failed
	built  map[string]*strings.Builder
	results
}

func newCollector(out io.Writer, module string) *collector {
	return &collector{out: out, module: module + "/", output: map[[2]string]*strings.Builder{}, failed: map[string]bool{}, built: map[string]*strings.Builder{}}
}

// read takes the events of a run until it is over.
func (c *collector) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				fmt.Fprintf(c.out, "%s", line) // go itself has something to say
			} else {
				c.take(&e)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (c *collector) take(e *event) {
	key := [2]string{e.Package, e.Test}
	folder := strings.TrimPrefix(e.Package, c.module)
	switch e.Action {
	case "build-output":
		text(c.built, e.ImportPath).WriteString(e.Output)
	case "output":
		text(c.output, key).WriteString(e.Output)
	case "pass":
		if c.tests++; e.Test == "" {
			c.tests--
			c.over("ok", folder, e.Elapsed)
		}
		c.took(e, folder)
		delete(c.output, key)
	case "skip":
		if e.Test != "" {
			c.skips = append(c.skips, skip{folder + "." + e.Test, said(text(c.output, key).String())})
		}
		delete(c.output, key)
	case "fail":
		c.fail(e, folder)
	}
}

// fail notes what has failed: tests by themselves, a package only if none of its tests did.
func (c *collector) fail(e *event, folder string) {
	key := [2]string{e.Package, e.Test}
	output := text(c.output, key).String()
	if e.Test == "" {
		c.over("FAIL", folder, e.Elapsed)
		for _, b := range c.built {
			output = b.String() + output
		}
		clear(c.built)
		if c.unfinished(e.Package, folder) || c.failed[e.Package] {
			return
		}
	}
	c.failed[e.Package] = true
	delete(c.output, key)
	f := failure{pkg: e.Package, test: e.Test, output: output, certain: strings.Contains(output, "WARNING: DATA RACE")}
	c.failures = append(c.failures, f)
	fmt.Fprintf(c.out, "--- FAIL: %s\n%s", f.name(c.module), output)
}

// unfinished notes the tests that had begun when their package ended: one of them has hung, or
// ended the program. What it said last says why.
func (c *collector) unfinished(pkg, folder string) (any bool) {
	for _, key := range slices.SortedFunc(maps.Keys(c.output), func(a, b [2]string) int { return cmp.Compare(a[1], b[1]) }) {
		if key[0] != pkg || key[1] == "" {
			continue
		}
		any = true
		output := text(c.output, key).String()
		c.failures = append(c.failures, failure{pkg: pkg, test: key[1], output: output, certain: true})
		fmt.Fprintf(c.out, "--- UNFINISHED: %s.%s\n%s", folder, key[1], output)
	}
	return any
}

// took notes how long a test took.
func (c *collector) took(e *event, folder string) {
	if e.Test == "" || strings.Contains(e.Test, "/") {
		return
	}
	c.slowest = append(c.slowest, timed{folder + "." + e.Test, e.Elapsed})
	slices.SortStableFunc(c.slowest, func(a, b timed) int { return cmp.Compare(b.seconds, a.seconds) })
	c.slowest = c.slowest[:min(len(c.slowest), keepSlowest)]
}

// name is that of a test as in lab.TestDelay, or the folder of a package.
func (f failure) name(module string) string {
	folder := strings.TrimPrefix(f.pkg, module)
	if f.test == "" {
		return folder
	}
	return folder + "." + f.test
}

func (c *collector) over(how, folder string, seconds float64) {
	c.packages++
	fmt.Fprintf(c.out, "%-4s %s (%v)\n", how, folder, time.Duration(seconds*float64(time.Second)).Round(10*time.Millisecond))
}

func text[K comparable](m map[K]*strings.Builder, key K) *strings.Builder {
	if m[key] == nil {
		m[key] = &strings.Builder{}
	}
	return m[key]
}

// said is what a test has said of why it was skipped, on one line.
func said(output string) string {
	var lines []string
	for line := range strings.Lines(output) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}
