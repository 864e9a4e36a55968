package network

import (
	"context"
	"errors"

	"github.com/sluice-net/sluice/openflow"
)

// bundle is a group of changes that a switch stores and then makes all at once.
type bundle struct {
	ch       *channel
	st       step
	id       uint32
	addBatch *batch
	finished bool // committed or discarded
}

const bundleFlags = openflow.BundleAtomic | openflow.BundleOrdered

// addMessages returns the messages that open a bundle and add the step's operations to it.
func (st *step) addMessages(id uint32) []openflow.Message {
	msgs := []openflow.Message{&openflow.BundleControl{Bundle: id, Op: openflow.BundleOpenRequest, Flags: bundleFlags}}
	for _, op := range st.ops {
		msgs = append(msgs, &openflow.BundleAdd{Bundle: id, Flags: bundleFlags, Message: op.Message})
	}
	return msgs
}

// commitMessage returns the message that commits a bundle.
func commitMessage(id uint32) openflow.Message {
	return &openflow.BundleControl{Bundle: id, Op: openflow.BundleCommitRequest, Flags: bundleFlags}
}

// sendWholeBundle sends a bundle and its commit together, which takes one round trip, and returns
// a function that waits for both. The switch leaves out a part that it refuses and commits the
// rest.
func sendWholeBundle(ctx context.Context, ch *channel, st step, opts ApplyOptions) (wait func() error) {
	id := ch.xid.Add(1)
	sent, err := ch.sendBatch(append(st.addMessages(id), commitMessage(id)))
	if err != nil {
		return func() error { return st.encodeError(err) }
	}
	return func() error {
		errs, err := ch.wait(ctx, sent)
		if errors.Is(err, ErrSwitchDown) {
			return switchLost(st.sw, opts)
		}
		return st.result(errs, 1, err)
	}
}

// openBundle opens a bundle for a step and sends its parts.
func openBundle(ch *channel, st step) (*bundle, error) {
	b := &bundle{ch: ch, st: st, id: ch.xid.Add(1)}
	var err error
	if b.addBatch, err = ch.sendBatch(st.addMessages(b.id)); err != nil {
		return nil, st.encodeError(err)
	}
	return b, nil
}

// awaitFilled waits until the switch has accepted all parts. It discards the bundle if the switch
// refuses one.
func (b *bundle) awaitFilled(ctx context.Context) error {
	errs, err := b.ch.wait(ctx, b.addBatch)
	if err = b.st.result(errs, 1, err); err != nil {
		b.discard()
	}
	return err
}

// discard discards a bundle that is not committed.
func (b *bundle) discard() {
	if !b.finished {
		b.finished = true
		_ = b.ch.send(&openflow.BundleControl{Bundle: b.id, Op: openflow.BundleDiscardRequest, Flags: bundleFlags}, b.ch.xid.Add(1))
	}
}

// commit sends the commit and returns a function that waits for it. A switch may refuse a part as
// late as at the commit. Its error then names the message that added the part, so commit keeps
// that batch registered for errors.
func (b *bundle) commit() (wait func(context.Context) error) {
	b.finished = true
	b.ch.register(b.addBatch)
	sent, err := b.ch.sendBatch([]openflow.Message{commitMessage(b.id)})
	return func(ctx context.Context) error {
		defer b.ch.unregister(b.addBatch)
		if err != nil {
			return b.st.encodeError(err)
		}
		errs, err := b.ch.wait(ctx, sent)
		if late := b.ch.errorsOf(b.addBatch); len(errs) > 0 && len(late) > 0 {
			return b.st.refusalError(late, 1)
		}
		return b.st.result(errs, len(b.st.ops)+1, err)
	}
}

// runBundle makes the changes of a step in one bundle.
func runBundle(ctx context.Context, ch *channel, st step) error {
	b, err := openBundle(ch, st)
	if err != nil {
		return err
	}
	if err := b.awaitFilled(ctx); err != nil {
		return err
	}
	return b.commit()(ctx)
}

// probeBundles returns an error if the switch does not support bundles.
func probeBundles(ctx context.Context, ch *channel) error {
	id := ch.xid.Add(1)
	for _, op := range []openflow.BundleOp{openflow.BundleOpenRequest, openflow.BundleDiscardRequest} {
		if _, err := ch.call(ctx, &openflow.BundleControl{Bundle: id, Op: op, Flags: bundleFlags}); err != nil {
			return err
		}
	}
	return nil
}
