package testbed

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"time"
)

// pulse is a stream of numbered messages over a transport that keeps bytes in order. A message
// counts as sent when it is due, whether or not the transport accepts it, because a message that
// the transport holds back is a gap to the receiver.
type pulse struct {
	*deliveries
	interval time.Duration
	more     chan struct{} // signals that a message is due
}

// pulseSize is the number of bytes of a message, about what a voice codec sends.
const pulseSize = 200

func newPulse(rate int) *pulse {
	return &pulse{deliveries: newDeliveries(), interval: time.Second / time.Duration(rate), more: make(chan struct{}, 1)}
}

// tick makes messages due until the context ends.
func (p *pulse) tick(ctx context.Context) {
	pace := newPace(p.interval)
	defer pace.stop()
	for pace.wait(ctx) {
		if _, ok := p.next(pace.due().UnixNano()); !ok {
			return
		}
		select {
		case p.more <- struct{}{}:
		default: // The sender has been signalled already.
		}
	}
}

// sendFrom writes the messages that are due, beginning with the given number, until the context
// ends or writing fails.
func (p *pulse) sendFrom(ctx context.Context, number int, w io.Writer) error {
	block := make([]byte, pulseSize)
	for {
		sent, _ := p.count()
		for ; number < sent; number++ {
			binary.BigEndian.PutUint64(block, uint64(number))
			if _, err := w.Write(block); err != nil {
				return fmt.Errorf("send message %d: %w", number, err)
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.more:
		}
	}
}

// receiveFrom reads messages until reading fails.
func (p *pulse) receiveFrom(r io.Reader) error {
	block := make([]byte, pulseSize)
	for {
		if _, err := io.ReadFull(r, block); err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		p.arrived(int(binary.BigEndian.Uint64(block)), time.Now().UnixNano())
	}
}

// expected returns the number of the message that the receiver waits for.
func (p *pulse) expected() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.highest + 1
}

// watch calls dead once, when nothing has arrived for limit after a first arrival.
func (p *pulse) watch(ctx context.Context, limit time.Duration, dead func()) {
	tick := time.NewTicker(max(limit/20, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if last := p.lastArrival(); !last.IsZero() && time.Since(last) > limit {
			dead()
			return
		}
	}
}
