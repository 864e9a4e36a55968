package testbed

import (
	"context"
	"time"
)

// pace lets a sender go at a steady rate. A sender that was late catches up by
// a few messages at most; what it missed beyond that is not sent at all.
type pace struct {
	interval time.Duration
	ticker   *time.Ticker
	began    time.Time
	done     int
	burst    int // how many messages it catches up by
}

func newPace(interval time.Duration) *pace {
	return &pace{interval: interval, ticker: time.NewTicker(max(interval, 500*time.Microsecond)), began: time.Now(), burst: streamBurst}
}

// wait returns true when the next message is due, false when the context has ended.
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

// due is when the message that wait has just returned for was due.
func (p *pace) due() time.Time { return p.began.Add(time.Duration(p.done) * p.interval) }

func (p *pace) stop() { p.ticker.Stop() }
