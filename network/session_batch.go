package network

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// batch is a group of changes between whose first message and closing barrier
// every error of the switch is collected.
type batch struct {
	first, last uint32 // last is the barrier's
	errs        []batchError
	done        chan struct{}
	replied     bool // done is closed; it may go on listening
	sent        time.Time
}

// batchError is the switch's refusal of message index of the batch.
type batchError struct {
	index int
	err   *openflow.Error
}

// maxBatchErrors bounds what one batch remembers.
const maxBatchErrors = 64

// sendBatch queues messages and a barrier, and registers for their errors.
func (ch *channel) sendBatch(msgs []openflow.Message) (*batch, error) {
	return ch.queueBatch(msgs, true)
}

// queueBatch is sendBatch for messages that are changes, or that renew what is there.
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

// countType is how many of the messages are of a type.
func countType(msgs []openflow.Message, t openflow.MsgType) (n uint64) {
	for _, m := range msgs {
		if unwrapBundle(m).MsgType() == t {
			n++
		}
	}
	return n
}

// unwrapBundle is the message that a bundle's message carries, or the message itself.
func unwrapBundle(m openflow.Message) openflow.Message {
	if add, ok := m.(*openflow.BundleAdd); ok {
		return add.Message
	}
	return m
}

// messageError says that a message cannot be encoded.
type messageError struct {
	op  openflow.Message
	err error
}

func (e *messageError) Error() string { return e.err.Error() }
func (e *messageError) Unwrap() error { return e.err }

// wait returns when the barrier has come back.
func (ch *channel) wait(ctx context.Context, bt *batch) ([]batchError, error) {
	select {
	case <-bt.done:
		return bt.errs, nil
	case <-ch.done:
		return nil, ch.errDown()
	case <-ctx.Done(): // that it is owed is remembered, see withheld
		return nil, fmt.Errorf("switch %v: no barrier reply: %w", ch.dpid, ctx.Err())
	}
}

// register has a batch collect errors: until its barrier comes or, if that has come, until it
// is forgotten.
func (ch *channel) register(bt *batch) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.batches = append(ch.batches, bt)
}

func (ch *channel) errorsOf(bt *batch) []batchError {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return bt.errs
}

func (ch *channel) unregister(bt *batch) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if i := slices.Index(ch.batches, bt); i >= 0 {
		ch.batches = slices.Delete(ch.batches, i, i+1)
	}
}

// overdueSince is since when the switch owes a barrier reply, although it has been heard since;
// zero if it owes none. One that says nothing at all is silent, which is another matter.
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

// endIfOverdue ends a session whose switch answers, but does not confirm what it was
// sent: nobody can tell what it does.
func (ch *channel) endIfOverdue() {
	if since := ch.overdueSince(); !since.IsZero() && time.Since(since) > ch.timeout && !ch.ended() {
		ch.close(fmt.Errorf("it has withheld a barrier reply for %v", time.Since(since).Round(time.Millisecond)))
	}
}

// barrierReply ends the batch whose barrier was answered.
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
