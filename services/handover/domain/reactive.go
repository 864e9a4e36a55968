package domain

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// Bounds of the reactive variant.
const (
	maxAsking   = 64
	maxNotFound = 4096
	// confirmedFor is how long a device may attach at a place after its home has confirmed that
	// the device is there. It covers the DHCP exchange from the first message to the last.
	confirmedFor = 10 * time.Second
)

// question is what neighbours are asked: who has the hardware address that is used at the port. A
// negative answer is remembered for that port only. So a host that uses a device's address at another
// port does not lock the device out.
type question struct {
	mac openflow.MAC
	at  network.PortRef
}

// Receiver implements the role of a domain to which devices come.
type Receiver struct {
	*common
	logLimit lograte.Limit // limits log lines that any host can cause

	mu sync.Mutex
	// asking holds the hardware addresses about which neighbours are being asked. notFound holds
	// the questions with a negative answer, and until when each answer is remembered.
	asking   map[openflow.MAC]bool
	notFound map[question]time.Time
}

// ask starts to ask the neighbours about a hardware address, unless they have just been asked. If
// too many questions are in progress the message is dropped: clients ask again, whereas a device
// that is wrongly taken for unknown would get another address than its own.
func (s *Receiver) ask(mac openflow.MAC, h Heading, e *Evidence) Admission {
	q := question{mac, h.place().At}
	if h.MAC.IsZero() {
		h.MAC = mac
	}
	return s.begin(q, Serve, func(ctx context.Context) error { return s.search(ctx, mac, h, e) })
}

// begin asks the question by running f in the background, and calls Host.Resume afterwards. It returns
// Wait, or the admission otherwise if the question had a negative answer lately or the service does
// not run.
func (s *Receiver) begin(q question, otherwise Admission, f func(context.Context) error) Admission {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch until, known := s.notFound[q]; {
	case s.asking[q.mac]:
		return Wait
	case known && s.now().Before(until):
		return otherwise
	case len(s.asking) >= maxAsking:
		if otherwise == Serve { // the question is about an unknown device
			s.metrics.overflow.Inc()
		}
		return Wait
	}
	s.asking[q.mac] = s.tasks.Start(func(ctx context.Context) {
		err := f(ctx)
		s.mu.Lock()
		delete(s.asking, q.mac)
		if err != nil && len(s.notFound) < maxNotFound {
			s.notFound[q] = s.now().Add(s.remembered(err))
		}
		s.mu.Unlock()
		if err != nil {
			s.logLimit.Info(s.log, "no neighbour has given us the device", "mac", q.mac.String(), "port", q.at, "reason", err)
		}
		s.host.Resume(q.mac)
	})
	if !s.asking[q.mac] {
		delete(s.asking, q.mac)
		return otherwise
	}
	return Wait
}

// remembered returns how long a negative answer is remembered: briefly if it may soon become
// positive.
func (s *Receiver) remembered(err error) time.Duration {
	if codeOf(err).retryable() {
		return min(s.timing.Retry, s.timing.Forget)
	}
	return s.timing.Forget
}

// askHome asks the home of a visitor whether it is the visitor that has sent a request at a place
// where it was not before.
func (s *Receiver) askHome(r *Record, mac openflow.MAC, p Place, e *Evidence) Admission {
	if e == nil {
		return Wait // without evidence the visitor must not be served
	}
	return s.begin(question{mac, p.At}, Wait, func(ctx context.Context) error {
		if refusal := s.confirmVisitor(ctx, r, *e); refusal != nil {
			return refusal
		}
		s.change(ctx, r.ID, func(_ context.Context, r *Record) error {
			if r.Gone {
				return errUnchanged
			}
			r.Confirmed, r.ConfirmedUntil = p, s.now().Add(confirmedFor)
			return nil
		})
		return nil
	})
}

// confirmVisitor asks the home of a visitor to verify the evidence. If the visitor has been announced
// and its home cannot be asked now, confirmVisitor accepts the visitor nevertheless: its origin still
// demands the evidence before it gives the visitor away.
func (s *Receiver) confirmVisitor(ctx context.Context, r *Record, e Evidence) *Refusal {
	if r.Move == nil {
		return s.verify(ctx, r, e)
	}
	ctx, cancel := context.WithTimeout(ctx, s.timing.Answer)
	defer cancel()
	refusal := s.verify(ctx, r, e)
	if refusal != nil && refusal.Code.retryable() {
		return nil
	}
	return refusal
}

// answer is the answer of one neighbour.
type answer struct {
	from *neighbour
	Answer
	err error
}

// search asks all neighbours at once who has the device, and takes the device over from the neighbour
// that has it.
func (s *Receiver) search(ctx context.Context, mac openflow.MAC, h Heading, e *Evidence) error {
	asked, cancel := context.WithTimeout(ctx, s.timing.Answer)
	defer cancel()
	answers := make(chan answer, len(s.neighbours))
	known := s.records.ofMAC(mac)
	for _, n := range s.neighbours {
		ok := s.tasks.Start(func(context.Context) {
			a := answer{from: n}
			if known != nil {
				// Without the messages that are still in the outbox, the neighbour's answer would be outdated.
				_ = n.deliver(asked, known.ID)
			}
			a.err = n.request(asked, KindQuery, &Query{MAC: mac}, &a.Answer, s.timing.Answer)
			answers <- a
		})
		if !ok {
			return context.Canceled
		}
	}
	found, err := s.choose(mac, answers)
	cancel()
	if err != nil {
		return err
	}
	return s.takeOver(ctx, found, mac, h, e)
}

// choose waits for the answers and returns the answer of the domain that has the device. The answer of
// the device's home takes precedence over others. If the home says that it has the device itself,
// choose does not wait for the other answers, so a neighbour that is down causes no delay.
func (s *Receiver) choose(mac openflow.MAC, answers <-chan answer) (answer, error) {
	var hosts, homes []answer
	for range s.neighbours {
		a := <-answers
		if a.err != nil || !a.Known {
			continue
		}
		if err := s.credible(mac, a); err != nil {
			s.violation(a.from, KindQuery, err)
			continue
		}
		if a.Host == a.from.Name {
			hosts = append(hosts, a)
		}
		if a.Visitor.Home != a.from.Name {
			continue
		}
		homes = append(homes, a)
		if a.Host == a.from.Name && len(homes) == 1 {
			return a, nil // the device is at home: no other answer takes precedence
		}
	}
	return resolve(hosts, homes)
}

// resolve chooses among contradicting answers.
func resolve(hosts, homes []answer) (answer, error) {
	if len(homes) > 1 {
		return answer{}, fmt.Errorf("%q and %q both call it their own", homes[0].from.Name, homes[1].from.Name)
	}
	if len(homes) == 1 {
		for _, a := range hosts {
			if a.from.Name == homes[0].Host && a.Visitor.same(*homes[0].Visitor) {
				return a, nil
			}
		}
		return answer{}, fmt.Errorf("its home %q says that it is with %q, which does not", homes[0].from.Name, homes[0].Host)
	}
	switch len(hosts) {
	case 0:
		return answer{}, fmt.Errorf("nobody knows it")
	case 1:
		return hosts[0], nil
	}
	return answer{}, fmt.Errorf("%q and %q both claim to have it", hosts[0].from.Name, hosts[1].from.Name)
}

// credible checks what a neighbour says about a device.
func (s *Receiver) credible(mac openflow.MAC, a answer) error {
	v := a.Visitor
	switch {
	case v == nil || !nameForm.MatchString(a.Host):
		return refuse(CodeMalformed, "it knows the device but does not say which, or where")
	case v.check() != nil:
		return refuse(CodeMalformed, "%v", v.check())
	case !slices.Contains(v.MACs, mac):
		return refuse(CodeMalformed, "it was asked about %v and answers about %s", mac, v.Device)
	}
	return orNil(s.mayBring(a.from, *v, s.records.get(v.LocalID(s.self))))
}

// takeOver claims the device and prepares its branch at the same time.
func (s *Receiver) takeOver(ctx context.Context, from answer, mac openflow.MAC, h Heading, e *Evidence) error {
	n, v := from.from, *from.Visitor
	id := v.LocalID(s.self)
	ctx, cancel := context.WithTimeout(ctx, 2*s.timing.Request)
	defer cancel()
	move := newToken()
	claimed := make(chan answer, 1)
	if err := s.beginTakeOver(ctx, n, v, move); err != nil {
		return err
	}
	ok := s.tasks.Start(func(context.Context) {
		claim := &Claim{Subject: v.subject(), Move: move, MAC: mac, Evidence: e}
		claimed <- answer{from: n, err: s.claim(ctx, n, id, claim)}
	})
	if !ok {
		return context.Canceled
	}
	prepared := s.prepareTakeOver(ctx, id, move, h)
	a := <-claimed
	return s.endTakeOver(ctx, n, id, move, h.place(), prepared, a.err)
}

// claim claims the device after all messages about it in the outbox have been delivered: an earlier
// message must not undo a later one.
func (s *Receiver) claim(ctx context.Context, n *neighbour, id string, claim *Claim) error {
	end, err := n.lockSending(ctx, id)
	if err != nil {
		return err
	}
	defer end()
	if err := n.deliverLocked(ctx, id, true); err != nil {
		return err
	}
	var reply Prepared
	if err := n.request(ctx, KindClaim, claim, &reply, s.timing.Request); err != nil {
		return err
	}
	if reply.Move != claim.Move {
		return fmt.Errorf("%w: it is about another move", errReply)
	}
	return nil
}

// beginTakeOver records the move.
func (s *Receiver) beginTakeOver(ctx context.Context, n *neighbour, v Visitor, move string) error {
	return s.records.with(ctx, v.LocalID(s.self), func(r *Record) error {
		if refusal := s.mayBring(n, v, r); refusal != nil {
			return refusal
		}
		if r != nil && r.Move != nil {
			return ErrMoving
		}
		r = s.expect(r, v)
		r.Move = s.incomingMove(n.Name, move, r.onChain(s.self))
		r.Move.Reactive = true
		s.put(ctx, r)
		return nil
	})
}

// prepareTakeOver makes the branch.
func (s *Receiver) prepareTakeOver(ctx context.Context, id, move string, h Heading) error {
	return s.records.with(ctx, id, func(r *Record) error {
		if r == nil || r.Move == nil || r.Move.ID != move {
			return ErrMoving
		}
		return s.host.Prepare(ctx, s.visit(r, h))
	})
}

// endTakeOver lets the device attach at the place where it has asked, or undoes the move.
func (s *Receiver) endTakeOver(ctx context.Context, n *neighbour, id, move string, p Place, prepared, claimed error) error {
	err := prepared
	if err == nil {
		err = claimed
	}
	s.change(ctx, id, func(ctx context.Context, r *Record) error {
		if r.incoming(n.Name) == nil || r.Move.ID != move {
			err = ErrMoving
			return errUnchanged
		}
		if err == nil {
			r.Move.Stage = StageReady
			r.Confirmed, r.ConfirmedUntil = p, s.now().Add(confirmedFor)
			return nil
		}
		s.endIncoming(ctx, r)
		if claimed == nil || codeOf(claimed) == "" {
			r.enqueue(Unsent{Peer: n.Name, Kind: KindWithdraw, Move: move, Reason: "the branch was not made"})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("take %s from %q: %w", id, n.Name, err)
	}
	return nil
}

// forgetNotFound removes the questions that may be asked again.
func (s *Receiver) forgetNotFound() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for q, until := range s.notFound {
		if now.After(until) {
			delete(s.notFound, q)
		}
	}
}
