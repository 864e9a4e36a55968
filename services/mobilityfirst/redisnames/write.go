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

// waitTimeout is how long replicas may take.
const waitTimeout = 500 * time.Millisecond

// write is a pending write of a record.
type write struct {
	name  frame.GUID
	value []byte // the value to store; its stamp distinguishes it from all other writes
	done  func(changed bool, err error)
}

func (w *write) fail(err error) { w.done(false, err) }

// Write stores a verified record, and returns when Redis has it as the package documentation says.
// It succeeds without a change if the same record is stored already. The error wraps record.ErrOld,
// ErrFull, ErrBusy or ErrClosed, ErrStored or ErrWeak, or is that of Redis. If it is ErrBusy, or if
// ctx has ended, the record may be written nevertheless.
func (s *Store) Write(ctx context.Context, r *record.Record) error {
	return record.Await(ctx, r, s.Start)
}

// Start begins to store a verified record without waiting. It calls done when Redis has the record,
// or with the error that Write would return. changed is set if the stored record has changed, or
// may have. done must not block. If Start returns an error, it does not call done.
func (s *Store) Start(r *record.Record, done func(changed bool, err error)) error {
	if err := s.state.Load().writeErr; err != nil {
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

// writeAll stores the records of names of one master. An error means that the master does not
// answer.
func (s *Store) writeAll(ctx context.Context, all []*write) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout+s.slack)
	defer cancel()
	var silent error
	retry := s.send(ctx, all, &silent, writeScript.EvalSha)
	s.send(ctx, retry, &silent, writeScript.Eval) // Eval stores the script in Redis
	return silent
}

// send runs the script for records, and returns those for which Redis does not know the script.
func (s *Store) send(ctx context.Context, all []*write, silent *error, run func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd) (retry []*write) {
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
		answers[i] = run(ctx, p, []string{keyOf(w.name)}, w.value, s.keep.Milliseconds(), full, channel, s.notification(w.name))
	}
	_, _ = p.Exec(ctx) // each answer has its own error
	for i, w := range all {
		answer, err := answers[i].Result()
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			retry = append(retry, w)
			continue
		}
		err = s.checkAnswer(silent, err)
		switch {
		case errors.Is(err, record.ErrBusy): // the record may be stored, now or later
			s.renewSender()
			w.done(true, err)
		case err != nil:
			w.done(false, err)
		default:
			w.done(s.result(w, answer))
		}
	}
	return retry
}

// result returns the result of a write from the answer of the script.
func (s *Store) result(w *write, answer any) (changed bool, err error) {
	bare := w.value[stampSize:]
	switch answer := answer.(type) {
	case int64:
		if answer == 0 {
			return false, fmt.Errorf("%v: %d names: %w", w.name, s.Names(), record.ErrFull)
		}
		s.known.add(digestOf(bare))
		return true, nil
	case string:
		have := []byte(answer)
		old, err := parseStored(w.name, have)
		if err != nil {
			return false, err
		}
		if bytes.Equal(have[stampSize:], bare) { // equal stamps mean that this very write was sent twice
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

// errReplicas means that a master has answered, but its replicas have not in time. It wraps
// record.ErrBusy.
var errReplicas = fmt.Errorf("too few of its replicas have answered: %w", record.ErrBusy)

// waitHook makes a master report, after each batch of writes, how many of its replicas have them.
type waitHook struct{ replicas int }

// DialHook implements redis.Hook.
func (waitHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (waitHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook. A pipeline uses one connection, to which WAIT refers.
func (h waitHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		commands = slices.DeleteFunc(slices.Clone(commands), func(c redis.Cmder) bool { return c.Name() == "wait" }) // from an earlier attempt
		if len(commands) == 0 {
			return nil
		}
		if !slices.ContainsFunc(commands, isWrite) {
			return next(ctx, commands)
		}
		wait := redis.NewIntCmd(ctx, "wait", h.replicas, waitTimeout.Milliseconds())
		err := next(ctx, append(commands, wait))
		replicas, waitErr := wait.Result()
		if waitErr == nil && replicas >= int64(h.replicas) {
			return err
		}
		if waitErr == nil {
			waitErr = fmt.Errorf("redis: %d of %d replicas have it: %w", replicas, h.replicas, errReplicas)
		}
		for _, c := range commands {
			if isWrite(c) && c.Err() == nil {
				c.SetErr(waitErr)
			}
		}
		return err
	}
}

// isWrite reports whether a command writes.
func isWrite(c redis.Cmder) bool { return c.Name() == "evalsha" || c.Name() == "eval" }
