package experiment

import "fmt"

// Result is the result of an experiment.
type Result struct {
	// Network describes the lab in one sentence: links, MTU, switches.
	Network string
	Tables  []Table
	Plots   []Plot
	Claims  []Claim
	// Notes tell the reader what limits the figures.
	Notes []string
}

// Table is a table of the report, which is also printed on the terminal.
type Table struct {
	Title   string
	Columns []string
	Rows    [][]string
}

// Add appends a row. Each cell is printed with %v.
func (t *Table) Add(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = fmt.Sprint(c)
	}
	t.Rows = append(t.Rows, row)
}

// Claim is a statement that the experiment tests.
type Claim struct {
	Text   string // statement with its bound
	Result string // what was measured
	Met    bool
}

// Verdict returns a word of six letters that says whether the claim holds.
func (c Claim) Verdict() string {
	if c.Met {
		return "holds "
	}
	return "MISSED"
}

// Claim adds a claim to the result.
func (r *Result) Claim(met bool, text, format string, args ...any) {
	r.Claims = append(r.Claims, Claim{Text: text, Result: fmt.Sprintf(format, args...), Met: met})
}

// Note adds a remark to the result.
func (r *Result) Note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// Plot is a line plot.
type Plot struct {
	Name       string // name of the files, without ending
	Title      string
	X, Y       string // axis labels with units
	LogX, LogY bool
	Left       bool // puts the legend on the left, for lines that rise
	Series     []Series
}

// Series is one line of a plot. Published lines are dashed.
type Series struct {
	Label     string
	Published bool
	X, Y      []float64
}

// Point appends one point.
func (s *Series) Point(x, y float64) {
	s.X = append(s.X, x)
	s.Y = append(s.Y, y)
}
