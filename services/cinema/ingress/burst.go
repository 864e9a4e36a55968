package ingress

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit/control"
)

const (
	// burstTime is the time in which a burst is sent, unless that would need a rate below
	// minBurstRate or above maxBurstRate, in bit/s.
	burstTime                  = 25 * time.Millisecond
	minBurstRate, maxBurstRate = 20e6, 200e6
	// maxChannelBursts and maxBursts bound the bursts in progress, of one channel and in total.
	maxChannelBursts, maxBursts = 32, 128
	// maxKeyFrameAge is how old the last key frame may be before a burst requests another one.
	maxKeyFrameAge = time.Second
)

// burst starts to send the channel's packets since the last key frame to one address. It does not wait
// until they are sent. all holds one element for each burst of the gateway that is in progress.
func (c *channel) burst(to netip.AddrPort, all chan struct{}) error {
	now := time.Now()
	if s := c.publisher(); s != nil && c.stale(now, maxKeyFrameAge) {
		s.askKeyFrame(now)
	}
	full := &control.Problem{Title: "too many bursts", Code: control.CodeFull}
	if c.bursts.Add(1) > maxChannelBursts {
		c.bursts.Add(-1)
		full.Detail = fmt.Sprintf("%d of the channel %s", maxChannelBursts, c.name)
		return full
	}
	select {
	case all <- struct{}{}:
	default:
		c.bursts.Add(-1)
		full.Detail = fmt.Sprintf("%d of all channels", maxBursts)
		return full
	}
	done := func() { <-all; c.bursts.Add(-1) }
	group := c.cache.Group()
	c.totals.bursts.Add(1)
	started := c.tasks.Start(func(ctx context.Context) {
		defer done()
		sendPaced(ctx, group, func(b []byte) bool {
			if err := c.out.send(b, to); err != nil {
				c.recordSendError(err)
				return false
			}
			c.totals.out.Add(uint64(len(b)))
			return true
		})
	})
	if !started { // the channel is being closed
		done()
	}
	return nil
}

// sendPaced sends datagrams at an even rate. It stops when send returns false or ctx ends.
func sendPaced(ctx context.Context, group [][]byte, send func([]byte) bool) {
	total, sent := 0, 0
	for _, b := range group {
		total += len(b) + headerBytes
	}
	rate := min(max(8*float64(total)/burstTime.Seconds(), minBurstRate), maxBurstRate)
	began := time.Now()
	for _, b := range group {
		due := time.Duration(8 * float64(sent) / rate * float64(time.Second))
		if ahead := due - time.Since(began); ahead > time.Millisecond && tasks.Sleep(ctx, ahead) != nil {
			return
		}
		if !send(b) {
			return
		}
		sent += len(b) + headerBytes
	}
}
