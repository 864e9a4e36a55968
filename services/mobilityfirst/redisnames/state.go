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

// Fsync says when a node of Redis writes to its disk: its setting appendfsync.
type Fsync string

const (
	// FsyncAlways means that a node writes to its disk before it answers.
	FsyncAlways Fsync = "always"
	// FsyncEverySecond means that a node writes to its disk within a second or two: a power cut
	// loses what was acknowledged in that time.
	FsyncEverySecond Fsync = "everysec"
	// FsyncNever means that a node's operating system decides when to write to the disk, or that
	// the node writes nothing to its disk.
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

// ErrWeak means that a node of the cluster is configured to keep writes less durably than required;
// errors wrap it.
var ErrWeak = errors.New("names could be lost")

const (
	// checkInterval is the time between two checks of the nodes, and checkTimeout how long one
	// check may take.
	checkInterval, checkTimeout = 2 * time.Second, time.Second
)

// state is the state of the cluster as last checked.
type state struct {
	err      error // the reason why nothing can be read
	writeErr error // the reason why nothing can be written: err, or ErrWeak
}

// monitor checks the nodes until ctx ends, and logs changes.
func (s *Store) monitor(ctx context.Context) {
	before := s.state.Load().writeErr
	for tasks.Sleep(ctx, checkInterval) == nil {
		err := s.checkNodes(ctx)
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

// checkNodes reads the settings of the nodes and the number of keys of the masters. The error wraps
// record.ErrBusy if no node answers, or ErrWeak, or is that of Redis.
func (s *Store) checkNodes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout+s.slack)
	defer cancel()
	all := nodeCheck{want: s.Fsync}
	if err := s.cluster.ForEachShard(ctx, func(ctx context.Context, node *redis.Client) error {
		all.ask(ctx, node)
		return nil
	}); err != nil {
		return storeError(err)
	}
	if all.answered == 0 {
		return cmp.Or(all.err, fmt.Errorf("redis: no node has a part of the names: %w", record.ErrBusy))
	}
	if all.unreadable != nil && s.state.Load().err != nil {
		s.Log.Warn("Redis does not say how it keeps names, and is believed to keep them as it should", "appendfsync", s.Fsync, "error", all.unreadable)
	}
	s.state.Store(&state{writeErr: all.weak})
	s.count(ctx)
	return all.weak
}

// count adds up the numbers of keys of the masters. If one does not answer, the old sum stays.
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

// nodeCheck collects the answers of nodes.
type nodeCheck struct {
	want Fsync

	mu         sync.Mutex
	answered   int
	err        error // the error of a node that has not answered
	unreadable error // the error of a node that does not report its settings
	weak       error // the fault in the settings of a node
}

// ask reads the settings of a node.
func (n *nodeCheck) ask(ctx context.Context, node *redis.Client) {
	p := node.Pipeline()
	disk, memory := p.ConfigGet(ctx, "append*"), p.ConfigGet(ctx, "maxmemory*")
	_, err := p.Exec(ctx)
	n.mu.Lock()
	defer n.mu.Unlock()
	answer := redis.Error(nil)
	switch {
	case err == nil:
		n.answered++
		if err := checkSettings(n.want, disk.Val(), memory.Val()); err != nil {
			n.weak = fmt.Errorf("redis at %s: %w", node.Options().Addr, err)
		}
	case errors.As(err, &answer) && !errors.Is(storeError(err), record.ErrBusy):
		n.answered++
		n.unreadable = fmt.Errorf("redis at %s: %w", node.Options().Addr, err)
	default:
		n.err = storeError(err)
	}
}

// checkSettings returns an error that wraps ErrWeak if the settings of a node are too weak.
func checkSettings(want Fsync, disk, memory map[string]string) error {
	if policy := memory["maxmemory-policy"]; memory["maxmemory"] != "0" && policy != "noeviction" {
		return fmt.Errorf("its maxmemory-policy is %s: set it to noeviction: %w", policy, ErrWeak)
	}
	have := Fsync(disk["appendfsync"])
	if disk["appendonly"] != "yes" {
		have = FsyncNever
	}
	if rank(have) < rank(want) {
		return fmt.Errorf("its appendonly is %s and its appendfsync %s, want %s: change these settings, or require less: %w", disk["appendonly"], disk["appendfsync"], want, ErrWeak)
	}
	return nil
}

// rank returns a higher number for a more durable setting.
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
