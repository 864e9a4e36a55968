package demo

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// progress shows a transfer: by a bar that moves on a terminal, and by the final line only
// elsewhere.
type progress struct {
	out     io.Writer
	tty     bool
	label   string
	total   int64
	started time.Time
}

const barWidth = 30

// update redraws the bar.
func (p *progress) update(done int64) {
	if p.tty {
		fmt.Fprintf(p.out, "\r\x1b[K%s", p.line(done, time.Since(p.started)))
	}
}

// finish ends the line.
func (p *progress) finish(done int64, took time.Duration) {
	if p.tty {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
	fmt.Fprintln(p.out, p.line(done, took))
}

// abort moves the cursor to a new line.
func (p *progress) abort() {
	if p.tty {
		fmt.Fprintln(p.out)
	}
}

func (p *progress) line(done int64, took time.Duration) string {
	filled := 0
	if p.total > 0 {
		filled = int(min(done, p.total) * barWidth / p.total)
	}
	rate := 0.0
	if took > 0 {
		rate = float64(done) * 8 / took.Seconds() / 1e6
	}
	return fmt.Sprintf("  %-7s [%s%s] %5.1f MB  %6.1f s  %6.1f Mbit/s", p.label,
		strings.Repeat("#", filled), strings.Repeat(".", barWidth-filled), float64(done)/1e6, took.Seconds(), rate)
}
