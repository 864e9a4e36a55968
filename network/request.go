package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// request waits for the reply to one message. A reply in several parts collects
// here until the last has come.
type request struct {
	sent     time.Time
	answered time.Time // when the reader saw the last part
	parts    []openflow.Message
	bytes    int64 // that the parts take
	empty    int   // parts that held nothing, and said that more follows
	err      error
	done     chan struct{}
}

// call sends a message and waits for its reply: all parts of it, or the error
// the switch answered with.
func (s *Switch) call(ctx context.Context, m openflow.Message) ([]openflow.Message, error) {
	r, err := s.exchange(ctx, m)
	if err != nil {
		return nil, err
	}
	return r.parts, nil
}

// exchange is call for those who ask how long it took: that is the time between
// the system calls, not until a waiting goroutine gets its turn.
func (s *Switch) exchange(ctx context.Context, m openflow.Message) (*request, error) {
	ctx, cancel := context.WithTimeout(ctx, s.n.cfg.RequestTimeout)
	defer cancel()
	xid := s.xid.Add(1)
	r := &request{sent: time.Now(), done: make(chan struct{})}
	s.mu.Lock()
	s.requests[xid] = r
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.requests, xid)
		s.mu.Unlock()
		s.n.replies.give(&s.replies, r.bytes)
	}()
	if err := s.send(m, xid); err != nil {
		return nil, err
	}
	select {
	case <-r.done:
		if r.err != nil {
			return nil, fmt.Errorf("switch %v: %v: %w", s.dpid, m.MsgType(), r.err)
		}
		return r, nil
	case <-s.done:
		return nil, s.down()
	case <-ctx.Done():
		return nil, fmt.Errorf("switch %v: no reply to %v: %w", s.dpid, m.MsgType(), ctx.Err())
	}
}

// send queues a control message and writes what is queued.
func (s *Switch) send(m openflow.Message, xid uint32) error {
	b, err := m.AppendTo(s.out.lockControl(), xid)
	s.out.unlockControl(b)
	if err != nil {
		return err
	}
	s.out.flush()
	return nil
}

// reply hands a message to whoever waits for it. It runs on the reader.
func (s *Switch) reply(raw []byte) {
	xid := openflow.XID(raw)
	s.mu.Lock()
	r := s.requests[xid]
	s.mu.Unlock()
	if r == nil {
		return
	}
	if openflow.IsEmptyPart(raw) {
		if r.empty++; r.empty > maxEmptyParts {
			s.finish(xid, r, fmt.Errorf("%w: more than %d parts of a reply hold nothing", ErrBusy, maxEmptyParts))
		}
		return
	}
	_, m, err := openflow.Decode(bytes.Clone(raw))
	if err != nil {
		s.finish(xid, r, err)
		return
	}
	if err := s.keep(xid, r, m); err != nil {
		s.limiter.Warn(s.n.cfg.Log, "reply of a switch not kept", "switch", s.dpid, "error", err)
		s.finish(xid, r, err)
		return
	}
	if mp, ok := m.(*openflow.MultipartReply); ok && mp.More {
		return
	}
	s.finish(xid, r, nil)
}

// maxEmptyParts is how many parts of a reply may hold nothing: each costs time, and none
// brings the end nearer.
const maxEmptyParts = 64

func (s *Switch) finish(xid uint32, r *request, err error) {
	s.mu.Lock()
	delete(s.requests, xid)
	s.mu.Unlock()
	r.err, r.answered = err, s.pkt.At
	close(r.done)
}

// batch is a group of changes between whose first message and closing barrier
// every error of the switch is collected.
type batch struct {
	first, last uint32 // last is the barrier's
	errs        []batchError
	done        chan struct{}
	over        bool // done is closed; it may go on listening
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
func (s *Switch) sendBatch(msgs []openflow.Message) (*batch, error) {
	bt := &batch{done: make(chan struct{}), sent: time.Now()}
	b := s.out.lockControl()
	start := len(b)
	bt.last = s.xid.Add(uint32(len(msgs) + 1))
	bt.first = bt.last - uint32(len(msgs))
	var err error
	for i, m := range msgs {
		if b, err = m.AppendTo(b, bt.first+uint32(i)); err != nil {
			s.out.unlockControl(b[:start])
			return nil, &messageError{op: inner(m), err: err}
		}
	}
	b, _ = (&openflow.BarrierRequest{}).AppendTo(b, bt.last)
	s.mu.Lock()
	s.batches = append(s.batches, bt)
	s.mu.Unlock()
	s.out.unlockControl(b)
	s.counters.flowMods.Add(uint64(countFlowMods(msgs)))
	s.out.flush()
	return bt, nil
}

func countFlowMods(msgs []openflow.Message) (n int) {
	for _, m := range msgs {
		if inner(m).MsgType() == openflow.TypeFlowMod {
			n++
		}
	}
	return n
}

// inner is the message that a bundle's message carries, or the message itself.
func inner(m openflow.Message) openflow.Message {
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
func (s *Switch) wait(ctx context.Context, bt *batch) ([]batchError, error) {
	select {
	case <-bt.done:
		return bt.errs, nil
	case <-s.done:
		return nil, s.down()
	case <-ctx.Done(): // that it is owed is remembered, see withheld
		return nil, fmt.Errorf("switch %v: no barrier reply: %w", s.dpid, ctx.Err())
	}
}

// listen has a batch whose barrier has come collect errors once more, until it
// is forgotten.
func (s *Switch) listen(bt *batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches = append(s.batches, bt)
}

func (s *Switch) errorsOf(bt *batch) []batchError {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bt.errs
}

func (s *Switch) forget(bt *batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, b := range s.batches {
		if b == bt {
			s.batches = append(s.batches[:i], s.batches[i+1:]...)
			return
		}
	}
}

// withheld is since when the switch owes a barrier reply, although it has been heard since;
// zero if it owes none. One that says nothing at all is silent, which is another matter.
func (s *Switch) withheld() (since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	heard := time.Unix(0, s.heard.Load())
	for _, b := range s.batches {
		if !b.over && (since.IsZero() || b.sent.Before(since)) && heard.Sub(b.sent) > s.n.cfg.RequestTimeout/2 {
			since = b.sent
		}
	}
	return since
}

// barrier ends the batch whose barrier was answered.
func (s *Switch) barrier(xid uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, b := range s.batches {
		if b.last == xid && !b.over {
			b.over = true
			s.batches = append(s.batches[:i], s.batches[i+1:]...)
			close(b.done)
			return true
		}
	}
	return false
}

// refused hands an error of the switch to the request or batch it answers.
func (s *Switch) refused(raw []byte) {
	e := new(openflow.Error)
	if err := e.Decode(bytes.Clone(raw)); err != nil {
		s.malformed(err)
		return
	}
	s.counters.errors.Add(1)
	xid := openflow.XID(raw)
	s.mu.Lock()
	r := s.requests[xid]
	for _, b := range s.batches {
		if xid-b.first < b.last-b.first {
			if len(b.errs) < maxBatchErrors {
				b.errs = append(b.errs, batchError{int(xid - b.first), e})
			}
			s.mu.Unlock()
			return
		}
	}
	s.mu.Unlock()
	if r != nil {
		s.finish(xid, r, errors.Join(ErrRefused, e))
		return
	}
	s.refusals.note(e.Data)
	s.limiter.Warn(s.n.cfg.Log, "switch refused a message", "switch", s.dpid, "error", e)
}
