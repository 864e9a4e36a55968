package network

import (
	"context"
	"fmt"
	"iter"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// ask sends a multipart request whose replies are lists, and returns the elements of all parts.
// The caller calls done when it no longer uses them: until then they count towards the switch's
// memory. After an error there are no elements, and done does nothing.
func ask[R ~[]T, T any](ctx context.Context, ch *channel, body openflow.MultipartBody) (all iter.Seq[*T], done func(), err error) {
	parts, reply, err := ch.multipart(ctx, body)
	if err != nil {
		return func(func(*T) bool) {}, func() {}, err
	}
	return func(yield func(*T) bool) {
		for _, p := range parts {
			part := *any(p).(*R) // multipart has checked the type
			for i := range part {
				if !yield(&part[i]) {
					return
				}
			}
		}
	}, reply.release, nil
}

// askFlows requests the rules that a filter selects. It returns what ask returns.
func askFlows(ctx context.Context, ch *channel, of openflow.FlowFilter) (all iter.Seq[*openflow.FlowStats], done func(), err error) {
	return ask[openflow.FlowStatsReply](ctx, ch, &openflow.FlowStatsRequest{FlowFilter: of})
}

// ourFlows returns a filter that selects the rules whose cookies were made by Sluice.
func ourFlows() openflow.FlowFilter {
	f := openflow.AllFlows()
	f.Cookie, f.CookieMask = uint64(rule.Magic)<<56, rule.MagicMask
	return f
}

// multipart sends a multipart request and returns the bodies of all parts of its reply. The caller
// releases the reply when it no longer uses them.
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
