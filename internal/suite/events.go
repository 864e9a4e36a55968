package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
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
	race              bool // the race detector has spoken
}

// skip is a test that was skipped, as lab.TestDelay.
type skip struct{ test, output string }

// results is what a run of go test came to.
type results struct {
	failures []failure
	skips    []skip
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
		if c.failed[e.Package] {
			return
		}
	}
	c.failed[e.Package] = true
	f := failure{pkg: e.Package, test: e.Test, output: output, race: strings.Contains(output, "WARNING: DATA RACE")}
	c.failures = append(c.failures, f)
	fmt.Fprintf(c.out, "--- FAIL: %s\n%s", f.name(c.module), output)
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
