package experiment

import (
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Env is what an experiment measures with.
type Env struct {
	Scale  Scale
	Only   Only
	Dir    string // where the output goes
	Binary string // the program sluice, which controllers and agents are started from
	Lab    string // the program sluice-lab, which hostile switches are started from

	log         io.Writer
	started     time.Time
	step, steps int
	files       []string
}

// Steps announces how many steps the experiment has.
func (e *Env) Steps(n int) { e.steps = n }

// Step tells the user what is being measured now.
func (e *Env) Step(format string, args ...any) {
	e.step++
	count := fmt.Sprintf("%d", e.step)
	if e.steps > 0 {
		count = fmt.Sprintf("%d/%d", e.step, max(e.step, e.steps))
	}
	fmt.Fprintf(e.log, "%6s  [%s] %s\n", time.Since(e.started).Truncate(time.Second), count, fmt.Sprintf(format, args...))
}

// Logf tells the user something about the current step.
func (e *Env) Logf(format string, args ...any) {
	fmt.Fprintf(e.log, "%6s        %s\n", "", fmt.Sprintf(format, args...))
}

// CSV opens a file of raw measurements. Each row reaches the disk at once, so
// that an interrupted experiment keeps what it has measured.
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
