package network

import (
	"context"
	"errors"

	"github.com/sluice-net/sluice/openflow"
)

// bundle is a group of changes that a switch holds ready and then makes all at once.
type bundle struct {
	ch     *channel
	st     stage
	id     uint32
	adding *batch
	over   bool // committed or discarded
}

const bundleFlags = openflow.BundleAtomic | openflow.BundleOrdered

// filling are the messages that open a bundle of a stage's operations and fill it.
func (st *stage) filling(id uint32) []openflow.Message {
	msgs := []openflow.Message{&openflow.BundleControl{Bundle: id, Op: openflow.BundleOpenRequest, Flags: bundleFlags}}
	for _, op := range st.ops {
		msgs = append(msgs, &openflow.BundleAdd{Bundle: id, Flags: bundleFlags, Message: op.Message})
	}
	return msgs
}

func committing(id uint32) openflow.Message {
	return &openflow.BundleControl{Bundle: id, Op: openflow.BundleCommitRequest, Flags: bundleFlags}
}

// wholeBundle sends a stage as a bundle and the order to commit it at once, and returns how
// to wait for both: one round trip. A part that the switch does not take is left out.
func wholeBundle(ctx context.Context, ch *channel, st stage, opts ApplyOptions) (wait func() error) {
	id := ch.xid.Add(1)
	sent, err := ch.sendBatch(append(st.filling(id), committing(id)))
	if err != nil {
		return func() error { return st.unencodable(err) }
	}
	return func() error {
		errs, err := ch.wait(ctx, sent)
		if errors.Is(err, ErrSwitchDown) {
			return lost(st.sw, opts)
		}
		return st.outcome(errs, 1, err)
	}
}

// openBundle makes a bundle of a stage and sends its parts.
func openBundle(ch *channel, st stage) (*bundle, error) {
	b := &bundle{ch: ch, st: st, id: ch.xid.Add(1)}
	var err error
	if b.adding, err = ch.sendBatch(st.filling(b.id)); err != nil {
		return nil, st.unencodable(err)
	}
	return b, nil
}

// filled waits until the switch has all parts. It checks each when it is added.
func (b *bundle) filled(ctx context.Context) error {
	errs, err := b.ch.wait(ctx, b.adding)
	if err = b.st.outcome(errs, 1, err); err != nil {
		b.discard()
	}
	return err
}

// discard gives up a bundle that is not committed.
func (b *bundle) discard() {
	if !b.over {
		b.over = true
		_ = b.ch.send(&openflow.BundleControl{Bundle: b.id, Op: openflow.BundleDiscardRequest, Flags: bundleFlags}, b.ch.xid.Add(1))
	}
}

// commit sends the order to make the changes, and returns how to wait for it. A
// switch may refuse a part as late as now: its error then names the message by
// which the part was added, so that batch goes on listening.
func (b *bundle) commit() (wait func(context.Context) error) {
	b.over = true
	b.ch.listen(b.adding)
	sent, err := b.ch.sendBatch([]openflow.Message{committing(b.id)})
	return func(ctx context.Context) error {
		defer b.ch.forget(b.adding)
		if err != nil {
			return b.st.unencodable(err)
		}
		errs, err := b.ch.wait(ctx, sent)
		if late := b.ch.errorsOf(b.adding); len(errs) > 0 && len(late) > 0 {
			return b.st.refusal(late, 1)
		}
		return b.st.outcome(errs, len(b.st.ops)+1, err)
	}
}

// inBundle makes the changes of a stage in one bundle.
func inBundle(ctx context.Context, ch *channel, st stage) error {
	b, err := openBundle(ch, st)
	if err != nil {
		return err
	}
	if err := b.filled(ctx); err != nil {
		return err
	}
	return b.commit()(ctx)
}

// tryBundle sees whether a switch takes bundles.
func tryBundle(ctx context.Context, ch *channel) error {
	id := ch.xid.Add(1)
	for _, op := range []openflow.BundleOp{openflow.BundleOpenRequest, openflow.BundleDiscardRequest} {
		if _, err := ch.call(ctx, &openflow.BundleControl{Bundle: id, Op: op, Flags: bundleFlags}); err != nil {
			return err
		}
	}
	return nil
}
