package redisnames

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// Fsync is when a node of Redis has what it is told on its disk: its appendfsync.
type Fsync string

const (
	// FsyncAlways is before it answers.
	FsyncAlways Fsync = "always"
	// FsyncEverySecond is within a second or two: a power cut loses what was acknowledged in that time.
	FsyncEverySecond Fsync = "everysec"
	// FsyncNever is when its operating system likes, or never, for nodes that write nothing to disk.
	FsyncNever Fsync = "no"
)

// MarshalText implements encoding.TextMarshaler. The zero value is FsyncAlways. The error wraps ErrOptions.
func (f Fsync) MarshalText() ([]byte, error) {
	switch f {
	case "":
		return []byte(FsyncAlways), nil
	case FsyncAlways, FsyncEverySecond, FsyncNever:
		return []byte(f), nil
	}
	return nil, fmt.Errorf("%q: want %s, %s or %s: %w", string(f), FsyncAlways, FsyncEverySecond, FsyncNever, ErrOptions)
}

// UnmarshalText implements encoding.TextUnmarshaler. The error wraps ErrOptions.
func (f *Fsync) UnmarshalText(text []byte) error {
	b, err := Fsync(text).MarshalText()
	if err == nil {
		*f = Fsync(b)
	}
	return err
}

// ErrWeak is for a cluster of which a node keeps what it is told less well than it is to; errors wrap it.
var ErrWeak = errors.New("names could be lost")

const (
	// lookEvery is how often the nodes are looked at, lookWithin how long all may take.
	lookEvery, lookWithin = 2 * time.Second, time.Second
)

// state is what is known of the cluster.
type state struct {
	err  error // why nothing can be asked
	weak error // why nothing can be written: err, or ErrWeak
}

// keepLooking looks at the nodes until ctx ends, and tells what is not as it was.
func (s *Store) keepLooking(ctx context.Context) {
	before := s.state.Load().weak
	for tasks.Sleep(ctx, lookEvery) == nil {
		err := s.look(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrWeak) && !errors.Is(before, ErrWeak):
			s.Log.Error("nothing is written to Redis", "error", err)
		case err != nil && before == nil:
			s.Log.Warn("Redis does not answer as it should", "error", err)
		case err == nil && before != nil:
			s.Log.Info("Redis answers as it should", "names", s.Names())
		}
		before = err
	}
}

// look asks the nodes how they keep what they are told, and the masters how many keys they have. The error wraps
// record.ErrBusy if no node answers, or ErrWeak, or says what Redis says.
func (s *Store) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookWithin+s.slack)
	defer cancel()
	all := nodes{want: s.Fsync}
	if err := s.cluster.ForEachShard(ctx, func(ctx context.Context, node *redis.Client) error {
		all.ask(ctx, node)
		return nil
	}); err != nil {
		return told(err)
	}
	if all.answered == 0 {
		return cmp.Or(all.err, fmt.Errorf("redis: no node has a part of the names: %w", record.ErrBusy))
	}
	if all.hidden != nil && s.state.Load().err != nil {
		s.Log.Warn("Redis does not say how it keeps names, and is believed to keep them as it should", "appendfsync", s.Fsync, "error", all.hidden)
	}
	s.state.Store(&state{weak: all.weak})
	s.count(ctx)
	return all.weak
}

// count adds up how many keys the masters have. If one does not answer, it is left as it was.
func (s *Store) count(ctx context.Context) {
	var mu sync.Mutex
	sum := int64(0)
	err := s.cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		n, err := node.DBSize(ctx).Result()
		mu.Lock()
		defer mu.Unlock()
		sum += max(n, 0)
		return err
	})
	if err == nil {
		s.names.Store(uint64(sum))
	}
}

// nodes are what those that are asked have answered.
type nodes struct {
	want Fsync

	mu       sync.Mutex
	answered int
	err      error // of one that has not
	hidden   error // of one that does not say how it keeps names
	weak     error // of one that does not keep them as it should
}

// ask asks a node.
func (n *nodes) ask(ctx context.Context, node *redis.Client) {
	p := node.Pipeline()
	disk, memory := p.ConfigGet(ctx, "append*"), p.ConfigGet(ctx, "maxmemory*")
	_, err := p.Exec(ctx)
	n.mu.Lock()
	defer n.mu.Unlock()
	answer := redis.Error(nil)
	switch {
	case err == nil:
		n.answered++
		if err := weakness(n.want, disk.Val(), memory.Val()); err != nil {
			n.weak = fmt.Errorf("redis at %s: %w", node.Options().Addr, err)
		}
	case errors.As(err, &answer) && !errors.Is(told(err), record.ErrBusy):
		n.answered++
		n.hidden = fmt.Errorf("redis at %s: %w", node.Options().Addr, err)
	default:
		n.err = told(err)
	}
}

// weakness is what is wrong with the settings of a node. The error wraps ErrWeak.
func weakness(want Fsync, disk, memory map[string]string) error {
	if policy := memory["maxmemory-policy"]; memory["maxmemory"] != "0" && policy != "noeviction" {
		return fmt.Errorf("its maxmemory-policy is %s: set it to noeviction: %w", policy, ErrWeak)
	}
	have := Fsync(disk["appendfsync"])
	if disk["appendonly"] != "yes" {
		have = FsyncNever
	}
	if rank(have) < rank(want) {
		return fmt.Errorf("its appendonly is %s and its appendfsync %s, %s is wanted: set them, or want less: %w", disk["appendonly"], disk["appendfsync"], want, ErrWeak)
	}
	return nil
}

// rank is higher for what keeps more.
func rank(f Fsync) int {
	switch f {
	case FsyncNever:
		return 0
	case FsyncEverySecond:
		return 1
	default:
		return 2
	}
}
