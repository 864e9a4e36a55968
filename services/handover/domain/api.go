package domain

import (
	"cmp"
	"context"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/pki"
)

// incoming constrains P to be a pointer to T that is a message.
type incoming[T any] interface {
	*T
	message
}

// Register adds the operations of neighbours, which require a certificate of role neighbour, and
// those of operators.
func (s *Service) Register(a *api.API) {
	a.Metrics().MustRegister(s.metrics)
	receive(s, a, KindHello, "Show that the sender is there", nil, s.onHello)
	receive(s, a, KindNotify, "Announce a device", func(m *Notify) Subject { return m.Visitor.subject() }, s.Receiver.onNotify)
	receive(s, a, KindReady, "Say that the branch to here gets packets", func(m *Ready) Subject { return m.Subject }, s.Receiver.onReady)
	receive(s, a, KindComplete, "Say that a device has arrived", func(m *Complete) Subject { return m.Subject }, s.Origin.onComplete)
	receive(s, a, KindQuery, "Ask who has a device", nil, s.Origin.onQuery)
	receive(s, a, KindClaim, "Claim a device that has appeared unannounced", func(m *Claim) Subject { return m.Subject }, s.Origin.onClaim)
	// Verify messages are not ordered: they may overtake others about the device in the outbox,
	// and evidence is accepted only once anyway.
	receive(s, a, KindVerify, "Ask whether a device has signed a request", nil, s.Origin.onVerify)
	receive(s, a, KindWithdraw, "Withdraw a move, or leave the chain", func(m *Withdraw) Subject { return m.Subject }, s.onWithdraw)

	r := kit.NewREST(a, "handover")
	kit.Show(r, "neighbours", "List the neighbouring domains", s.Neighbours)
	kit.Show(r, "roaming", "List devices that are abroad, visiting, or moving between domains", s.records.roaming)
}

// receive adds one operation. Before f handles a message, the sender's certificate and the
// message's freshness have been checked. about returns the device whose messages are ordered; it
// may be nil.
func receive[T, O any, P incoming[T]](s *Service, a *api.API, kind Kind, summary string, about func(P) Subject, f func(context.Context, *neighbour, P) (*O, error)) {
	a.Permit(pki.RoleNeighbour, http.MethodPost, Path+string(kind))
	op := huma.Operation{
		OperationID: "handover-neighbour-" + string(kind), Method: http.MethodPost, Path: Path + string(kind),
		Summary: summary, Description: "For the controllers of neighbouring domains, with a certificate of role neighbour.",
		Tags: []string{"handover"}, MaxBodyBytes: maxReply, DefaultStatus: http.StatusOK, Responses: refusals(a),
	}
	huma.Register(a.Huma(), op, func(ctx context.Context, in *kit.Body[T]) (*kit.Body[O], error) {
		m := P(&in.Body)
		n, refusal := s.sender(ctx, m.envelope())
		if refusal != nil {
			s.violation(cmp.Or(n, s.unknown), kind, refusal)
			return nil, refusal
		}
		var out *O
		err := s.handle(ctx, n, m.envelope(), deviceOf(m, about), func(ctx context.Context) (err error) {
			out, err = f(ctx, n, m)
			return err
		})
		if err != nil {
			s.violation(n, kind, err)
			return nil, err
		}
		s.metrics.received(n.Name, kind)
		reply := &kit.Body[O]{}
		if out != nil {
			reply.Body = *out
		}
		return reply, nil
	})
}

// problem is the body of a refused request: the API's own problem document, or a Refusal.
type problem struct {
	huma.ErrorModel
	Code     Code      `json:"code,omitempty"`
	Evidence *Evidence `json:"evidence,omitempty" doc:"With code here: proves that the device is where the refusal says"`
}

// refusals returns the responses with which a message may be refused, for the OpenAPI document.
func refusals(a *api.API) map[string]*huma.Response {
	schema := a.Huma().OpenAPI().Components.Schemas.Schema(reflect.TypeFor[problem](), true, "Problem")
	all := map[string]*huma.Response{}
	for _, code := range Codes() {
		status := code.status()
		all[strconv.Itoa(status)] = &huma.Response{
			Description: http.StatusText(status), Content: map[string]*huma.MediaType{"application/problem+json": {Schema: schema}},
		}
	}
	return all
}

// deviceOf returns the name of the device whose messages are ordered, or an empty string.
func deviceOf[P message](m P, about func(P) Subject) string {
	if about == nil {
		return ""
	}
	s := about(m)
	return s.Device + "@" + s.Home
}

// sender returns the neighbour whose certificate the request came with. It refuses a message that
// names another sender or another receiver.
func (s *Service) sender(ctx context.Context, e *Envelope) (*neighbour, *Refusal) {
	n := s.neighbours[e.From]
	switch {
	case api.Role(ctx) != pki.RoleNeighbour || api.Identity(ctx) != "certificate:"+e.From:
		return nil, refuse(CodeSender, "the message is from %.80q, the certificate is not", e.From)
	case n == nil:
		return nil, refuse(CodeSender, "%.80q is no neighbour of %q", e.From, s.self)
	case e.To != s.self:
		return n, refuse(CodeSender, "the message is for %.80q, this is %q", e.To, s.self)
	}
	return n, nil
}

// handle handles a message within the bounds of the neighbour. It waits until Restore has finished: a
// device whose record has not been read yet would be reported as unknown.
func (s *Service) handle(ctx context.Context, n *neighbour, e *Envelope, device string, f func(context.Context) error) error {
	if refusal := n.guard.accept(e, device, s.now()); refusal != nil {
		return refusal
	}
	select {
	case n.inflight <- struct{}{}:
		defer func() { <-n.inflight }()
	default:
		return refuse(CodeBusy, "too many requests of %q at once", n.Name)
	}
	n.noteHeard(s.now())
	ctx, cancel := context.WithTimeout(ctx, s.timing.Request)
	defer cancel()
	select {
	case <-s.restored:
		return f(ctx)
	case <-ctx.Done():
		return refuse(CodeBusy, "%q is still starting", s.self)
	}
}

// NeighbourStatus is the state of a neighbour for operators.
type NeighbourStatus struct {
	Name     string     `json:"name"`
	URL      string     `json:"url"`
	Peering  string     `json:"peering" doc:"Border port that leads to it"`
	Prefixes []string   `json:"prefixes"`
	Transit  []string   `json:"transit,omitempty"`
	Heard    *time.Time `json:"heard,omitempty" doc:"When it last answered or sent a message"`
	Fault    string     `json:"fault,omitempty" doc:"Why the last request to it failed"`
	Visitors int        `json:"visitors" doc:"Devices that came from it and are here or pass through"`
	Abroad   int        `json:"abroad" doc:"Devices whose packets are sent to it"`
	Outbox   int        `json:"outbox" doc:"Messages that still have to reach it"`
}

// Neighbours returns the state of all neighbours.
func (s *Service) Neighbours() []NeighbourStatus {
	list := make([]NeighbourStatus, 0, len(s.neighbours))
	for _, n := range s.neighbours {
		st := NeighbourStatus{Name: n.Name, URL: n.URL, Peering: n.Peering.String(), Prefixes: []string{}}
		st.Visitors, st.Abroad, st.Outbox = s.records.count(n.Name)
		for _, p := range n.Prefixes {
			st.Prefixes = append(st.Prefixes, p.String())
		}
		for _, p := range n.Transit {
			st.Transit = append(st.Transit, p.String())
		}
		n.mu.Lock()
		st.Fault = n.fault
		if !n.heard.IsZero() {
			heard := n.heard
			st.Heard = &heard
		}
		n.mu.Unlock()
		list = append(list, st)
	}
	slices.SortFunc(list, func(a, b NeighbourStatus) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Roaming is a device that has a Record, as the API shows it to operators.
type Roaming struct {
	ID         string     `json:"id"`
	Home       string     `json:"home"`
	IP         string     `json:"ip"`
	Upstream   string     `json:"upstream,omitempty" doc:"Neighbour that its packets come from"`
	Downstream string     `json:"downstream,omitempty" doc:"Neighbour that its packets go to"`
	Host       string     `json:"host,omitempty" doc:"Domain that has it, as far as is known"`
	Stage      Stage      `json:"stage,omitempty" doc:"How far its present move has got"`
	Peer       string     `json:"peer,omitempty" doc:"Neighbour of the present move"`
	Deadline   *time.Time `json:"deadline,omitempty" doc:"When the present move ends without success"`
	Outbox     int        `json:"outbox" doc:"Messages about it that still have to reach a neighbour"`
	Changed    time.Time  `json:"changed"`
}
