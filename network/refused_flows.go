package network

import (
	"encoding/binary"
	"sync"

	"github.com/sluice-net/sluice/network/ledger"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// refusedFlows are the flows of default forwarding whose rules a switch has refused.
type refusedFlows struct {
	owner uint16 // default forwarding's hash
	most  int

	mu      sync.Mutex
	cookies map[rule.Cookie]struct{}
}

// note notes whose rule a switch has refused: it gives back at least the first 64 bytes
// of the message, in which the cookie stands, but not the match.
func (r *refusedFlows) note(m []byte) {
	const cookie, command = 8, 25
	if len(m) <= command || openflow.MsgType(m[1]) != openflow.TypeFlowMod || m[command] != openflow.FlowAdd {
		return
	}
	c := rule.Cookie(binary.BigEndian.Uint64(m[cookie:]))
	if !c.Ours() || c.Owner() != r.owner {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cookies == nil {
		r.cookies = map[rule.Cookie]struct{}{}
	}
	if len(r.cookies) < r.most {
		r.cookies[c] = struct{}{}
	}
}

func (r *refusedFlows) take() map[rule.Cookie]struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	refused := r.cookies
	r.cookies = nil
	return refused
}

// forgetRefused forgets the flows whose rules a switch has refused, or they would keep
// the place of others for ever.
func (w *forwarding) forgetRefused(s *Switch) {
	refused := s.refusals.take()
	if len(refused) == 0 {
		return
	}
	for _, f := range s.flows.Select(func(_ rule.Flow, r ledger.FlowRule) bool {
		_, no := refused[r.Cookie]
		return no
	}) {
		w.forgetFlow(s, f)
	}
}
