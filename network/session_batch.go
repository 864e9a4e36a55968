package network

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// batch is a group of changes that ends with a barrier. It collects the errors that the switch sends
// for the changes.
type batch struct {
	first, last uint32 // transaction identifiers; last is the barrier's
	errs        []batchError
	done        chan struct{}
	replied     bool // done is closed; the batch may still be registered for errors
	sent        time.Time
}

// batchError is the switch's refusal of one message of a batch, given by its index.
type batchError struct {
	index int
	err   *openflow.Error
}

// maxBatchErrors is the number of errors that one batch keeps.
const maxBatchErrors = 64

// sendBatch sends messages followed by a barrier, and registers the batch for their errors.
func (ch *channel) sendBatch(msgs []openflow.Message) (*batch, error) {
	return ch.queueBatch(msgs, true)
}

// queueBatch is sendBatch with the choice whether the messages are counted as changes. Renewals of
// leases are not.
func (ch *channel) queueBatch(msgs []openflow.Message, changes bool) (*batch, error) {
	bt := &batch{done: make(chan struct{}), sent: time.Now()}
	b := ch.out.lockControl()
	start := len(b)
	bt.last = ch.xid.Add(uint32(len(msgs) + 1))
	bt.first = bt.last - uint32(len(msgs))
	var err error
	for i, m := range msgs {
		if b, err = m.AppendTo(b, bt.first+uint32(i)); err != nil {
			ch.out.unlockControl(b[:start])
			return nil, &messageError{op: unwrapBundle(m), err: err}
		}
	}
	b, _ = (&openflow.BarrierRequest{}).AppendTo(b, bt.last)
	ch.register(bt)
	ch.out.unlockControl(b)
	if changes {
		ch.flowMods.Add(countType(msgs, openflow.TypeFlowMod))
		ch.groupMods.Add(countType(msgs, openflow.TypeGroupMod))
	}
	ch.out.flush()
	return bt, nil
}

// countType returns how many of the messages have the type.
func countType(msgs []openflow.Message, t openflow.MsgType) (n uint64) {
	for _, m := range msgs {
		if unwrapBundle(m).MsgType() == t {
			n++
		}
	}
	return n
}

// unwrapBundle returns the message that a bundle's message carries, or the message itself.
func unwrapBundle(m openflow.Message) openflow.Message {
	if add, ok := m.(*openflow.BundleAdd); ok {
		return add.Message
	}
	return m
}

// messageError is the error for a message that cannot be encoded.
type messageError struct {
	op  openflow.Message
	err error
}

func (e *messageError) Error() string { return e.err.Error() }
func (e *messageError) Unwrap() error { return e.err }

// wait waits until the barrier of the batch is answered, and returns the errors of the switch.
func (ch *channel) wait(ctx context.Context, bt *batch) ([]batchError, error) {
	select {
	case <-bt.done:
		return bt.errs, nil
	case <-ch.done:
		return nil, ch.errDown()
	case <-ctx.Done(): // overdueSince still sees the missing reply
		return nil, fmt.Errorf("switch %v: no barrier reply: %w", ch.dpid, ctx.Err())
	}
}

// register makes a batch collect errors until its barrier is answered or, if that has happened
// already, until unregister is called.
func (ch *channel) register(bt *batch) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.batches = append(ch.batches, bt)
}

// errorsOf returns the errors that a batch has collected so far.
func (ch *channel) errorsOf(bt *batch) []batchError {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return bt.errs
}

// unregister ends the collecting of errors.
func (ch *channel) unregister(bt *batch) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if i := slices.Index(ch.batches, bt); i >= 0 {
		ch.batches = slices.Delete(ch.batches, i, i+1)
	}
}

// overdueSince returns when the oldest batch was sent whose barrier reply is missing although the
// switch has sent other messages since. It returns the zero time if there is none. The keepalive
// handles a switch that sends nothing at all.
func (ch *channel) overdueSince() (since time.Time) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	heard := time.Unix(0, ch.lastReceived.Load())
	for _, b := range ch.batches {
		if !b.replied && (since.IsZero() || b.sent.Before(since)) && heard.Sub(b.sent) > ch.timeout/2 {
			since = b.sent
		}
	}
	return since
}

// endIfOverdue ends the session of a switch that sends messages but has not answered a barrier
// within the request timeout: its state cannot be known.
func (ch *channel) endIfOverdue() {
	if since := ch.overdueSince(); !since.IsZero() && time.Since(since) > ch.timeout && !ch.ended() {
		ch.close(fmt.Errorf("it has not answered a barrier request for %v", time.Since(since).Round(time.Millisecond)))
	}
}

// barrierReply ends the batch whose barrier is answered, and reports whether there is one.
func (ch *channel) barrierReply(xid uint32) bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for i, b := range ch.batches {
		if b.last == xid && !b.replied {
			b.replied = true
			ch.batches = slices.Delete(ch.batches, i, i+1)
			close(b.done)
			return true
		}
	}
	return false
}
