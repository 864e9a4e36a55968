package soak

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/sluice-net/sluice/lab/testbed"
)

// ErrFaults is returned by a soak that has found faults, which it has printed.
var ErrFaults = errors.New("the soak has found faults")

// report prints the result, and returns ErrFaults if anything was wrong.
func (r *record) report(checks []check) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	checks = append(r.loadChecks(), checks...)
	if err := errors.Join(r.printLoads(), r.printHarm()); err != nil {
		return err
	}
	fmt.Fprintln(r.out)
	missed := 0
	for _, c := range checks {
		verdict := "holds "
		if !c.holds {
			verdict = "MISSED"
			missed++
		}
		fmt.Fprintf(r.out, "%s  %s: %s\n", verdict, c.name, c.found)
	}
	if missed > 0 {
		return fmt.Errorf("%w: %d of %d checks missed", ErrFaults, missed, len(checks))
	}
	return nil
}

// table prints rows of cells that are separated by tabs.
func table(out io.Writer, title string, rows []string) error {
	fmt.Fprintf(out, "\n%s\n", title)
	w := tabwriter.NewWriter(out, 2, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, "  "+row)
	}
	return w.Flush()
}

func (r *record) printLoads() error {
	rows := []string{"load\tsucceeded\tMB checked\tfailed\tby a kill\tunexplained"}
	for _, name := range r.order {
		t := r.loads[name]
		bad := len(unexplained(t.failures, r.incidents))
		rows = append(rows, fmt.Sprintf("%s\t%d\t%.1f\t%d\t%d\t%d", name, t.right, float64(t.bytes)/1e6, len(t.failures), len(t.failures)-bad, bad))
	}
	return table(r.out, "What the applications saw", rows)
}

func (r *record) printHarm() error {
	rows := []string{"harm\ttimes\tlongest until all was usable"}
	for _, p := range programs {
		times, longest := 0, time.Duration(0)
		for _, i := range r.incidents {
			if i.program == p {
				times++
				longest = max(longest, i.until.Sub(i.from))
			}
		}
		rows = append(rows, fmt.Sprintf("kill -9 of a %s\t%d\t%v", p, times, longest.Truncate(10*time.Millisecond)))
	}
	for name, n := range r.events {
		rows = append(rows, fmt.Sprintf("%s\t%d\t", name, n))
	}
	return table(r.out, "What disturbed them", rows)
}

// loadChecks returns the checks of the loads.
func (r *record) loadChecks() []check {
	var wrong, bad []failure
	idle := ""
	for _, name := range r.order {
		t := r.loads[name]
		for _, f := range unexplained(t.failures, r.incidents) {
			if f.kind == testbed.WrongBytes {
				wrong = append(wrong, f)
			} else {
				bad = append(bad, f)
			}
		}
		if t.right == 0 {
			idle += " " + name
		}
	}
	all := []check{
		{"every byte is correct", len(wrong) == 0, describe(wrong, r.began)},
		{"every failure is explained by a kill", len(bad) == 0, describe(bad, r.began)},
		{"every load has run", idle == "", "all"},
	}
	if idle != "" {
		all[2].found = "none of" + idle + " has succeeded"
	}
	return all
}

// describe returns the number of failures and the text of the first ones.
func describe(all []failure, began time.Time) string {
	if len(all) == 0 {
		return "none failed"
	}
	slices.SortFunc(all, func(a, b failure) int { return a.at.Compare(b.at) })
	text := fmt.Sprintf("%d failed", len(all))
	for _, f := range all[:min(len(all), failuresPrinted)] {
		text += fmt.Sprintf("\n          %s at %v, begun %v before: %s: %v", f.load, f.at.Sub(began).Truncate(time.Millisecond), f.at.Sub(f.began).Truncate(time.Millisecond), f.kind, f.err)
	}
	return text
}
