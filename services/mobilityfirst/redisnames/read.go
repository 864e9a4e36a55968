package redisnames

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// get is a pending read of a name's record.
type get struct {
	name  frame.GUID
	done  chan struct{} // closed when the following fields are set
	value []byte        // without the stamp; nil if there is no record
	err   error
}

func (g *get) fail(err error) {
	g.value, g.err = nil, err
	close(g.done)
}

// Get appends the record of a name to b, as record.Parse reads it, and reports whether there is
// one. The record is signed by the name's owner and may have expired. Get waits up to a second for
// Redis. The error wraps record.ErrBusy, record.ErrClosed or ErrStored, or is that of Redis.
func (s *Store) Get(b []byte, name frame.GUID) ([]byte, bool, error) {
	if err := s.state.Load().err; err != nil {
		return b, false, err
	}
	master, err := s.master(name)
	if err != nil {
		return b, false, err
	}
	g := &get{name: name, done: make(chan struct{})}
	if err := s.reads.add(master, g); err != nil {
		return b, false, err
	}
	<-g.done
	return append(b, g.value...), g.value != nil, g.err
}

// readAll reads the records of names of one master. An error means that the master does not answer.
func (s *Store) readAll(ctx context.Context, all []*get) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout+s.slack)
	defer cancel()
	p := s.cluster.Pipeline()
	answers := make([]*redis.StringCmd, len(all))
	for i, g := range all {
		answers[i] = p.GetRange(ctx, keyOf(g.name), 0, maxValue-1)
	}
	_, _ = p.Exec(ctx) // each answer has its own error
	var silent error
	records := make([]*record.Record, 0, len(all))
	unknown := make([]*get, 0, len(all))
	for i, g := range all {
		value, err := answers[i].Bytes()
		if g.err = s.checkAnswer(&silent, err); g.err != nil || len(value) == 0 {
			continue
		}
		r, err := parseStored(g.name, value)
		if err != nil {
			g.err = err
			continue
		}
		if g.value = value[stampSize:]; !s.known.contains(digestOf(g.value)) {
			records, unknown = append(records, r), append(unknown, g)
		}
	}
	for i, err := range verify(records, time.Now()) {
		g := unknown[i]
		if err != nil {
			g.value, g.err = nil, errors.Join(ErrStored, err)
			continue
		}
		s.known.add(digestOf(g.value))
	}
	for _, g := range all {
		close(g.done)
	}
	return silent
}

// checkAnswer converts an error of Redis, which may be nil or redis.Nil, to one of a store. If it
// means that the master does not answer, checkAnswer stores it in silent and reloads the cluster's
// state.
func (s *Store) checkAnswer(silent *error, err error) error {
	if err == nil || errors.Is(err, redis.Nil) {
		return nil
	}
	err = storeError(err)
	if answer := redis.Error(nil); *silent == nil && errors.Is(err, record.ErrBusy) && !errors.As(err, &answer) && !errors.Is(err, errReplicas) {
		*silent = err
		s.cluster.ReloadState(context.Background())
	}
	return err
}
