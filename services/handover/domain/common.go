package domain

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
)

// common holds what both roles of a domain, and its neighbours, share.
type common struct {
	self       string
	host       Host
	emit       func(string, any)
	log        *slog.Logger
	timing     Timing
	now        func() time.Time
	neighbours map[string]*neighbour
	sequence   counter
	metrics    *metrics
	tasks      *tasks.Group
	records    *records
	// delivered records that a message has reached a neighbour, or was refused for good.
	delivered func(ctx context.Context, n *neighbour, id string, o Unsent, err error) error
}

// mayGiveAway reports whether the device is in this domain, as far as is known. r is nil for a device
// that has no record.
func (s *common) mayGiveAway(r *Record, home string) bool {
	if r == nil || r.Gone {
		return home == s.self
	}
	return r.Host == s.self
}

// put makes the record visible, writes it, and schedules the delivery of its outbox. The caller
// holds the device's lock, or is the only user of the records.
func (s *common) put(ctx context.Context, r *Record) {
	s.records.set(r)
	// A caller that has given up must not leave memory and store different.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timing.Request)
	defer cancel()
	if err := s.records.save(ctx, r); err != nil {
		s.log.Error("a record of a roaming device was not written; it would be lost by a restart", "device", r.ID, "error", err)
	}
	for _, o := range r.Outbox {
		if n := s.neighbours[o.Peer]; n != nil {
			n.outbox.schedule(r.ID, o.NotBefore, 0)
		}
	}
}

// errUnchanged is returned by a function that change calls, so that the record is not stored.
var errUnchanged = errors.New("unchanged")

// change runs f on the device's record, under its lock. It uses a deadline of its own, so that a
// change is completed even if the caller has left. If f returns nil the record is stored.
func (s *common) change(ctx context.Context, id string, f func(context.Context, *Record) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timing.Request)
	defer cancel()
	err := s.records.with(ctx, id, func(r *Record) error {
		if r != nil && f(ctx, r) == nil {
			s.put(ctx, r)
		}
		return nil
	})
	if err != nil {
		s.log.Error("a device's record could not be changed", "device", id, "error", err)
	}
}

// withForNeighbour calls records.with for a neighbour's request. f refuses the request or returns nil.
// An error that is no refusal becomes one with CodeBusy.
func (s *common) withForNeighbour(ctx context.Context, id string, f func(*Record) *Refusal) error {
	err := s.records.with(ctx, id, func(r *Record) error { return orNil(f(r)) })
	if err != nil && codeOf(err) == "" {
		return refuse(CodeBusy, "%s is being worked on", id)
	}
	return err
}

// newMove returns a move that begins now.
func (s *common) newMove(peer string, stage Stage) *Move {
	now := s.now()
	return &Move{ID: newToken(), Peer: peer, Stage: stage, Started: now, Deadline: now.Add(s.timing.Move)}
}

// event publishes and logs that something happened to a device.
func (s *common) event(kind string, r *Record, attrs map[string]any) {
	attrs["device"], attrs["address"] = r.ID, r.IP.String()
	s.emit("domain."+kind, attrs)
	args := []any{"device", r.ID}
	for k, v := range attrs {
		if k != "device" && k != "address" {
			args = append(args, k, v)
		}
	}
	s.log.Info("device between domains: "+kind, args...)
}

// forget removes the device from this domain, whose part in the chain has ended.
func (s *common) forget(ctx context.Context, r *Record) {
	if err := s.host.Forget(ctx, r.ID); err != nil {
		s.log.Error("a device that has left was not removed", "device", r.ID, "error", err)
	}
	r.end()
}

// violation records that a neighbour has sent a message that it may not send.
func (s *common) violation(n *neighbour, kind Kind, err error) {
	s.metrics.refused(n.Name, kind, codeOf(err))
	if n.mayLog(s.now()) {
		s.log.Warn("a neighbour's message is refused", "neighbour", n.Name, "message", kind, "reason", err)
		s.emit("domain.refused", map[string]any{"neighbour": n.Name, "message": string(kind), "code": string(codeOf(err)), "reason": printable(err.Error())})
	}
}
