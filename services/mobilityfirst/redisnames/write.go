package redisnames

import (
	"bytes"
	"context"
	_ "embed" // the script
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

//go:embed write.lua
var writeSource string

// writeScript decides in Redis whether a record is stored.
var writeScript = redis.NewScript(writeSource)

// waitWithin is how long replicas may take.
const waitWithin = 500 * time.Millisecond

// write stores a record.
type write struct {
	name  frame.GUID
	value []byte // as it is to be stored; its stamp tells it from all other writes
	done  func(changed bool, err error)
}

func (w *write) fail(err error) { w.done(false, err) }

// Write stores a record that has been verified, and returns when Redis has it, as the package says. One that is there already is
// a success, and changes nothing. The error wraps record.ErrOld, ErrFull, ErrBusy or ErrClosed, or ErrStored, ErrWeak, or says what
// Redis says; if it is ErrBusy, or ctx has ended, it may be written nevertheless.
func (s *Store) Write(ctx context.Context, r *record.Record) error {
	return record.Await(ctx, r, s.Start)
}

// Start is Write without waiting: done is called when Redis has it, or with what Write would return, and is told whether that
// has changed anything, or may have. It must not block. An error means that done is not called.
func (s *Store) Start(r *record.Record, done func(changed bool, err error)) error {
	if err := s.state.Load().weak; err != nil {
		return err
	}
	w := &write{name: r.GUID(), done: done}
	master, err := s.master(w.name)
	if err != nil {
		return err
	}
	w.value = r.AppendTo(be.AppendUint64(nil, uint64(time.Now().UnixNano())))
	return s.writes.add(master, w)
}

// writeAll stores records, all of names of one master. The error says that it does not answer.
func (s *Store) writeAll(ctx context.Context, all []*write) error {
	ctx, cancel := context.WithTimeout(ctx, writeWithin+s.slack)
	defer cancel()
	var silent error
	again := s.send(ctx, all, &silent, writeScript.EvalSha)
	s.send(ctx, again, &silent, writeScript.Eval) // which teaches it the script
	return silent
}

// send has the script run for records, and gives back those for which Redis does not know it.
func (s *Store) send(ctx context.Context, all []*write, silent *error, run func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd) (again []*write) {
	if len(all) == 0 {
		return nil
	}
	full := 0
	if s.names.Load() >= s.MaxNames {
		full = 1
	}
	p := s.cluster.Pipeline()
	answers := make([]*redis.Cmd, len(all))
	for i, w := range all {
		answers[i] = run(ctx, p, []string{keyOf(w.name)}, w.value, s.keep.Milliseconds(), full, channel, s.news(w.name))
	}
	_, _ = p.Exec(ctx) // each answer has its error
	for i, w := range all {
		answer, err := answers[i].Result()
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			again = append(again, w)
			continue
		}
		err = s.away(silent, err)
		switch {
		case errors.Is(err, record.ErrBusy): // it may be there, or come yet
			s.rename()
			w.done(true, err)
		case err != nil:
			w.done(false, err)
		default:
			w.done(s.written(w, answer))
		}
	}
	return again
}

// written is what has become of a record by what the script has returned.
func (s *Store) written(w *write, answer any) (changed bool, err error) {
	bare := w.value[stamp:]
	switch answer := answer.(type) {
	case int64:
		if answer == 0 {
			return false, fmt.Errorf("%v: %d names: %w", w.name, s.Names(), record.ErrFull)
		}
		s.known.add(digestOf(bare))
		return true, nil
	case string:
		have := []byte(answer)
		old, err := stored(w.name, have)
		if err != nil {
			return false, err
		}
		if bytes.Equal(have[stamp:], bare) { // if it is from this very write, that was sent twice
			return bytes.Equal(have, w.value), nil
		}
		if err := verify([]*record.Record{old}, time.Now())[0]; err != nil {
			return false, fmt.Errorf("%w: %w", ErrStored, err)
		}
		return false, fmt.Errorf("%v, and record %d is there: %w", w.name, old.Number, record.ErrOld)
	default:
		return false, fmt.Errorf("%v: an answer of type %T: %w", w.name, answer, ErrStored)
	}
}

// errReplicas is for a master that has answered, and whose replicas have not in time. It wraps record.ErrBusy.
var errReplicas = fmt.Errorf("too few of its replicas have answered: %w", record.ErrBusy)

// waitHook has a master say, at the end of what is written to it together, how many of its replicas have that.
type waitHook struct{ replicas int }

// DialHook implements redis.Hook.
func (waitHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (waitHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook. What is sent together goes by one connection, of which WAIT is.
func (h waitHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		commands = slices.DeleteFunc(slices.Clone(commands), func(c redis.Cmder) bool { return c.Name() == "wait" }) // of a try before
		if len(commands) == 0 {
			return nil
		}
		if !slices.ContainsFunc(commands, writes) {
			return next(ctx, commands)
		}
		wait := redis.NewIntCmd(ctx, "wait", h.replicas, waitWithin.Milliseconds())
		err := next(ctx, append(commands, wait))
		replicas, waitErr := wait.Result()
		if waitErr == nil && replicas >= int64(h.replicas) {
			return err
		}
		if waitErr == nil {
			waitErr = fmt.Errorf("redis: %d of %d replicas have it: %w", replicas, h.replicas, errReplicas)
		}
		for _, c := range commands {
			if writes(c) && c.Err() == nil {
				c.SetErr(waitErr)
			}
		}
		return err
	}
}

// writes says whether a command writes.
func writes(c redis.Cmder) bool { return c.Name() == "evalsha" || c.Name() == "eval" }
