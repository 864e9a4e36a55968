package network

import (
	"context"
	"iter"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// ask asks a switch for statistics whose replies are lists, and gives what is in all parts,
// one after the other.
func ask[R ~[]T, T any](ctx context.Context, ch *channel, body openflow.MultipartBody) (iter.Seq[*T], error) {
	parts, err := ch.multipart(ctx, body)
	return func(yield func(*T) bool) {
		for _, p := range parts {
			part := *any(p).(*R) // multipart has looked
			for i := range part {
				if !yield(&part[i]) {
					return
				}
			}
		}
	}, err
}

// askFlows asks for rules.
func askFlows(ctx context.Context, ch *channel, of openflow.FlowFilter) (iter.Seq[*openflow.FlowStats], error) {
	return ask[openflow.FlowStatsReply](ctx, ch, &openflow.FlowStatsRequest{FlowFilter: of})
}

// ourFlows are the rules with a cookie of ours.
func ourFlows() openflow.FlowFilter {
	f := openflow.AllFlows()
	f.Cookie, f.CookieMask = uint64(rule.Magic)<<56, rule.MagicMask
	return f
}
