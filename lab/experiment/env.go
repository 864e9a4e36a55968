package experiment

import (
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Env provides what an experiment needs to measure.
type Env struct {
	Scale  Scale
	Only   Only
	Dir    string // folder for the output
	Binary string // path of sluice, which runs controllers and agents
	Lab    string // path of sluice-lab, which runs hostile switches

	log         io.Writer
	started     time.Time
	step, steps int
	files       []string
}

// Steps announces the number of steps of the experiment.
func (e *Env) Steps(n int) { e.steps = n }

// Step prints what is being measured now.
func (e *Env) Step(format string, args ...any) {
	e.step++
	count := fmt.Sprintf("%d", e.step)
	if e.steps > 0 {
		count = fmt.Sprintf("%d/%d", e.step, max(e.step, e.steps))
	}
	fmt.Fprintf(e.log, "%6s  [%s] %s\n", time.Since(e.started).Truncate(time.Second), count, fmt.Sprintf(format, args...))
}

// Logf prints a message about the current step.
func (e *Env) Logf(format string, args ...any) {
	fmt.Fprintf(e.log, "%6s        %s\n", "", fmt.Sprintf(format, args...))
}

// repeat measures a rate several times, each as a step, and returns the rates in bits per second.
func (e *Env) repeat(times int, what string, measure func() (float64, error)) ([]float64, error) {
	var rates []float64
	for range times {
		e.Step("%s", what)
		rate, err := measure()
		if err != nil {
			return nil, err
		}
		e.Logf("%.1f Mbit/s", rate/1e6)
		rates = append(rates, rate)
	}
	return rates, nil
}

// CSV creates a file of raw measurements. Each row is written to the file at once, so that an
// interrupted experiment keeps what it has measured.
func (e *Env) CSV(name string, columns ...string) (*CSV, error) {
	path := filepath.Join(e.Dir, name+".csv")
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("keep measurements: %w", err)
	}
	c := &CSV{file: f, w: csv.NewWriter(f), columns: len(columns)}
	e.files = append(e.files, path)
	return c, c.write(columns)
}

// CSV is a file of raw measurements.
type CSV struct {
	file    *os.File
	w       *csv.Writer
	columns int
}

// Row writes one row. Numbers are written in full, durations in seconds.
func (c *CSV) Row(cells ...any) error {
	if len(cells) != c.columns {
		return fmt.Errorf("%s: a row of %d cells for %d columns", c.file.Name(), len(cells), c.columns)
	}
	row := make([]string, len(cells))
	for i, cell := range cells {
		if d, ok := cell.(time.Duration); ok {
			cell = d.Seconds()
		}
		row[i] = fmt.Sprint(cell)
	}
	return c.write(row)
}

func (c *CSV) write(row []string) error {
	if err := c.w.Write(row); err != nil {
		return fmt.Errorf("write %s: %w", c.file.Name(), err)
	}
	c.w.Flush()
	if err := c.w.Error(); err != nil {
		return fmt.Errorf("write %s: %w", c.file.Name(), err)
	}
	return nil
}

// Close closes the file.
func (c *CSV) Close() error { return c.file.Close() }
