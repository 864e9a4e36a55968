package ingress

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/service/control"
)

const (
	// burstTime is what a group of pictures takes, unless that is beyond the rates, in bit/s.
	burstTime            = 25 * time.Millisecond
	slowBurst, fastBurst = 20e6, 200e6
	// channelBursts and allBursts are how many may be under way.
	channelBursts, allBursts = 32, 128
	// burstKeyFrame is how old the last key frame may be before a burst asks for another.
	burstKeyFrame = time.Second
)

// burst sends the channel's group of pictures to one address. It does not wait for the end.
func (c *channel) burst(to netip.AddrPort, all chan struct{}) error {
	now := time.Now()
	if s := c.publisher(); s != nil && c.stale(now, burstKeyFrame) {
		s.askKeyFrame(now)
	}
	full := &control.Problem{Title: "too many bursts", Code: control.CodeFull}
	if c.bursts.Add(1) > channelBursts {
		c.bursts.Add(-1)
		full.Detail = fmt.Sprintf("%d of the channel %s", channelBursts, c.name)
		return full
	}
	select {
	case all <- struct{}{}:
	default:
		c.bursts.Add(-1)
		full.Detail = fmt.Sprintf("%d of all channels", allBursts)
		return full
	}
	done := func() { <-all; c.bursts.Add(-1) }
	group := c.cache.Group()
	c.totals.bursts.Add(1)
	started := c.tasks.Start(func(ctx context.Context) {
		defer done()
		paced(ctx, group, func(b []byte) bool {
			if err := c.out.send(b, to); err != nil {
				c.notSent(err)
				return false
			}
			c.totals.out.Add(uint64(len(b)))
			return true
		})
	})
	if !started { // the channel is at its end
		done()
	}
	return nil
}

// paced sends datagrams one after the other, at an even rate, until one is not sent.
func paced(ctx context.Context, group [][]byte, send func([]byte) bool) {
	total, sent := 0, 0
	for _, b := range group {
		total += len(b) + headers
	}
	rate := min(max(8*float64(total)/burstTime.Seconds(), slowBurst), fastBurst)
	began := time.Now()
	for _, b := range group {
		due := time.Duration(8 * float64(sent) / rate * float64(time.Second))
		if ahead := due - time.Since(began); ahead > time.Millisecond && tasks.Sleep(ctx, ahead) != nil {
			return
		}
		if !send(b) {
			return
		}
		sent += len(b) + headers
	}
}
