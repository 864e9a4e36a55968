package network

import (
	"context"
	"fmt"
	"iter"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// ask asks a switch for statistics whose replies are lists, and gives what is in all parts,
// one after the other. The caller calls done when it needs nothing of it any more: until then
// it counts towards the switch's memory. With an error there is nothing, and done does nothing.
func ask[R ~[]T, T any](ctx context.Context, ch *channel, body openflow.MultipartBody) (all iter.Seq[*T], done func(), err error) {
	parts, reply, err := ch.multipart(ctx, body)
	if err != nil {
		return func(func(*T) bool) {}, func() {}, err
	}
	return func(yield func(*T) bool) {
		for _, p := range parts {
			part := *any(p).(*R) // multipart has looked
			for i := range part {
				if !yield(&part[i]) {
					return
				}
			}
		}
	}, reply.release, nil
}

// askFlows asks for rules, as ask does.
func askFlows(ctx context.Context, ch *channel, of openflow.FlowFilter) (all iter.Seq[*openflow.FlowStats], done func(), err error) {
	return ask[openflow.FlowStatsReply](ctx, ch, &openflow.FlowStatsRequest{FlowFilter: of})
}

// ourFlows are the rules with a cookie of ours.
func ourFlows() openflow.FlowFilter {
	f := openflow.AllFlows()
	f.Cookie, f.CookieMask = uint64(rule.Magic)<<56, rule.MagicMask
	return f
}

// multipart asks for statistics and returns the bodies of all parts. The caller releases
// the reply when it needs them no more.
func (ch *channel) multipart(ctx context.Context, body openflow.MultipartBody) ([]openflow.MultipartBody, *request, error) {
	r, err := ch.exchange(ctx, &openflow.MultipartRequest{Body: body})
	if err != nil {
		return nil, nil, err
	}
	out := make([]openflow.MultipartBody, 0, len(r.parts))
	for _, p := range r.parts {
		m, ok := p.(*openflow.MultipartReply)
		if !ok || m.Body.MultipartType() != body.MultipartType() {
			r.release()
			return nil, nil, fmt.Errorf("switch %v: %v in reply to a request for %v", ch.dpid, p.MsgType(), body.MultipartType())
		}
		out = append(out, m.Body)
	}
	return out, r, nil
}
