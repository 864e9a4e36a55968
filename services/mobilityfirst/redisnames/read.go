package redisnames

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// get asks for the record of a name.
type get struct {
	name  frame.GUID
	done  chan struct{} // closed when the rest is known
	value []byte        // without the stamp; nil for none
	err   error
}

func (g *get) fail(err error) {
	g.value, g.err = nil, err
	close(g.done)
}

// Get appends the record of a name to b, as record.Parse reads it, and says whether there is one. It may be over; its owner has
// signed it. It waits for Redis, for a second at most while that answers. The error wraps record.ErrBusy or record.ErrClosed, or
// ErrStored, or says what Redis says.
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

// readAll asks for records, all of names of one master. The error says that it does not answer.
func (s *Store) readAll(ctx context.Context, all []*get) error {
	ctx, cancel := context.WithTimeout(ctx, readWithin+s.slack)
	defer cancel()
	p := s.cluster.Pipeline()
	answers := make([]*redis.StringCmd, len(all))
	for i, g := range all {
		answers[i] = p.GetRange(ctx, keyOf(g.name), 0, maxValue-1)
	}
	_, _ = p.Exec(ctx) // each answer has its error
	var silent error
	records := make([]*record.Record, 0, len(all))
	unknown := make([]*get, 0, len(all))
	for i, g := range all {
		value, err := answers[i].Bytes()
		if g.err = s.away(&silent, err); g.err != nil || len(value) == 0 {
			continue
		}
		r, err := stored(g.name, value)
		if err != nil {
			g.err = err
			continue
		}
		if g.value = value[stamp:]; !s.known.has(digestOf(g.value)) {
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

// away is told, for an error that may be nil or redis.Nil. If it says that the master does not answer, it is put into silent,
// and where the masters are is asked anew.
func (s *Store) away(silent *error, err error) error {
	if err == nil || errors.Is(err, redis.Nil) {
		return nil
	}
	err = told(err)
	if answer := redis.Error(nil); *silent == nil && errors.Is(err, record.ErrBusy) && !errors.As(err, &answer) && !errors.Is(err, errReplicas) {
		*silent = err
		s.cluster.ReloadState(context.Background())
	}
	return err
}
