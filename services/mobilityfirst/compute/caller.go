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

// ErrFailed is for a chunk on which a function has failed; errors wrap it, and say why.
var ErrFailed = errors.New("the function has failed")

// maxCallerFlows is how many flows a Caller goes on with: who sends to more destinations begins new ones.
const maxCallerFlows = 1024

// Caller has functions called on what it sends. Its methods may be called concurrently.
type Caller struct {
	host    *hostapi.Client
	key     ed25519.PrivateKey
	name    frame.GUID
	sending chan struct{} // has one while a chunk gets its number and leaves, so that numbers leave in order

	mu    sync.Mutex
	flows map[way]callID // the last call of each
	calls map[callID]*calling
}

// way is by which function to which destination: calls there are a flow.
type way struct{ function, to frame.GUID }

// calling is a call that is under way.
type calling struct {
	order Order
	why   error // why the function has failed, nil unless it is known to have
}

// NewCaller returns one that sends as the name of a key, which is attached at a host.
func NewCaller(host *hostapi.Client, key ed25519.PrivateKey) *Caller {
	return &Caller{host: host, key: key, name: host.Name, sending: make(chan struct{}, 1), flows: map[way]callID{}, calls: map[callID]*calling{}}
}

// Send has a function called on a payload, and the result brought to a destination. It waits as hostapi.Client.Send does,
// and done is called as there: without an error when the destination has taken the result. An error that wraps ErrFailed says
// why there is none; if a node has said so and then died, another may have brought one since.
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
			err = why // the node has said that first
		}
		done(err)
	})
	if err != nil {
		_ = c.end(x)
	}
	return err
}

// begin notes a call, with the next number of its flow.
func (c *Caller) begin(function, to frame.GUID) *calling {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, is := c.flows[way{function, to}]
	if !is {
		for other := range c.flows {
			if len(c.flows) < maxCallerFlows {
				break
			}
			delete(c.flows, other)
		}
		last.flow = rand.Uint64()
	}
	last.number++
	c.flows[way{function, to}] = last
	x := &calling{order: Order{Function: function, Destination: to, Flow: last.flow, Number: last.number, Until: time.Now().Add(MaxValid).Truncate(time.Millisecond)}}
	c.calls[last] = x
	return x
}

// end forgets a call, and says why it has failed, if that is known.
func (c *Caller) end(x *calling) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, x.order.id())
	return x.why
}

// Hear says whether a chunk that has come for the caller's name is that a function has failed on one of its chunks, and notes
// that. Then it is to be given to hostapi.Client.Take; what else comes is for others.
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
		of.why = fmt.Errorf("chunk %d: %w: %s", m.Number, ErrFailed, readable(m.body))
		return true
	}
	// One of its calls that is over; or else of another program with the same name.
	return c.flows[way{m.Function, m.Destination}].flow == m.Flow
}

// Run hears what comes until ctx ends, or the host does. What else comes stays with who has sent it.
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

// readable is a reason as it can be shown.
func readable(b []byte) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(b[:min(len(b), hostapi.MaxReason)]), " "))
}
