package testbed

import (
	"context"
	"time"
)

// pace limits a sender to a steady rate. A late sender makes up for at most burst messages; those
// that it missed before are not sent at all.
type pace struct {
	interval time.Duration
	ticker   *time.Ticker
	began    time.Time
	done     int
	burst    int // how many messages it makes up for
}

func newPace(interval time.Duration) *pace {
	return &pace{interval: interval, ticker: time.NewTicker(max(interval, 500*time.Microsecond)), began: time.Now(), burst: streamBurst}
}

// wait waits until the next message is due. It returns false if the context has ended.
func (p *pace) wait(ctx context.Context) bool {
	for {
		if ctx.Err() != nil {
			return false
		}
		due := int(time.Since(p.began) / p.interval)
		p.done = max(p.done, due-p.burst)
		if p.done < due {
			p.done++
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-p.ticker.C:
		}
	}
}

// due returns the time at which the message was due for which wait has just returned.
func (p *pace) due() time.Time { return p.began.Add(time.Duration(p.done) * p.interval) }

func (p *pace) stop() { p.ticker.Stop() }
