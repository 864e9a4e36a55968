package compute

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

// ErrFailed means that a function has failed on a chunk; errors wrap it and contain the reason.
var ErrFailed = errors.New("the function has failed")

// maxCallerFlows limits the flows that a Caller remembers; with more destinations it begins new
// flows.
const maxCallerFlows = 1024

// Caller sends chunks through functions. Its methods may be called concurrently.
type Caller struct {
	host    *hostapi.Client
	key     ed25519.PrivateKey
	name    frame.GUID
	sending chan struct{} // contains an element while a chunk is numbered and sent, so that numbers are sent in order

	mu    sync.Mutex
	flows map[flowKey]callID // the last call of each flow
	calls map[callID]*pendingCall
}

// flowKey identifies a flow: the calls of one function for one destination.
type flowKey struct{ function, to frame.GUID }

// pendingCall is a call whose result is not known yet.
type pendingCall struct {
	order  Order
	reason error // why the function has failed, if that is known
}

// NewCaller returns a Caller that sends chunks from the name of a key. The name is attached at a
// host.
func NewCaller(host *hostapi.Client, key ed25519.PrivateKey) *Caller {
	return &Caller{host: host, key: key, name: host.Name, sending: make(chan struct{}, 1), flows: map[flowKey]callID{}, calls: map[callID]*pendingCall{}}
}

// Send calls a function on a payload, and has the result sent to a destination. It waits like
// hostapi.Client.Send, and calls done in the same way: with nil when the destination has taken the
// result over. An error that wraps ErrFailed is the reason why there is no result. If the node that
// reported the failure has ended since, another node may still have delivered a result.
func (c *Caller) Send(ctx context.Context, function, to frame.GUID, payload []byte, done func(error)) error {
	if len(payload) > MaxPayload {
		return fmt.Errorf("chunk of %d bytes for a function, at most %d", len(payload), MaxPayload)
	}
	select {
	case c.sending <- struct{}{}:
		defer func() { <-c.sending }()
	case <-ctx.Done():
		return ctx.Err()
	}
	x := c.begin(function, to)
	x.order.Sign(c.key, payload)
	m := message{kind: call, Order: x.order, body: payload}
	err := c.host.Send(ctx, function, frame.Compute, m.append(), func(err error) {
		if why := c.end(x); err == nil {
			err = why // the node has reported the failure first
		}
		done(err)
	})
	if err != nil {
		_ = c.end(x)
	}
	return err
}

// begin registers a call with the next number of its flow.
func (c *Caller) begin(function, to frame.GUID) *pendingCall {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, ok := c.flows[flowKey{function, to}]
	if !ok {
		for other := range c.flows {
			if len(c.flows) < maxCallerFlows {
				break
			}
			delete(c.flows, other)
		}
		last.flow = rand.Uint64()
	}
	last.number++
	c.flows[flowKey{function, to}] = last
	x := &pendingCall{order: Order{Function: function, Destination: to, Flow: last.flow, Number: last.number, Until: time.Now().Add(MaxValid).Truncate(time.Millisecond)}}
	c.calls[last] = x
	return x
}

// end removes a call, and returns the reason of its failure if that is known.
func (c *Caller) end(x *pendingCall) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, x.order.id())
	return x.reason
}

// Hear handles a chunk for the caller's name, and reports whether it is the report that a function
// has failed on one of the caller's chunks. The chunk then has to be passed to hostapi.Client.Take;
// Hear leaves other chunks to the application.
func (c *Caller) Hear(x hostapi.Chunk) bool {
	if !Is(x) {
		return false
	}
	m, err := parse(x.Payload)
	if err != nil || m.kind != failure || m.Source != c.name || m.Function != x.From {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if of := c.calls[m.id()]; of != nil && m.signature == of.order.signature {
		of.reason = fmt.Errorf("chunk %d: %w: %s", m.Number, ErrFailed, readable(m.body))
		return true
	}
	// It belongs to a call that has ended, or to another program with the same name.
	return c.flows[flowKey{m.Function, m.Destination}].flow == m.Flow
}

// Run receives reports of failures until ctx ends or the host fails. It refuses all other chunks.
func (c *Caller) Run(ctx context.Context) error {
	for {
		x, err := c.host.Receive(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if c.Hear(x) {
			err = c.host.Take(x)
		} else {
			err = c.host.Refuse(x)
		}
		if err != nil {
			return err
		}
	}
}

// readable returns a reason for display.
func readable(b []byte) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(b[:min(len(b), hostapi.MaxReason)]), " "))
}
