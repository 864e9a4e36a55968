package experiment

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"

	"github.com/sluice-net/sluice/internal/redistest"
	"github.com/sluice-net/sluice/lab/testbed"
)

const (
	// redisNamesPort is the port of the service whose names are in Redis.
	redisNamesPort = 5092
	// redisMasters is the number of nodes of the cluster; the first one listens at redisAt.
	redisMasters = 3
	redisAt      = "127.79.9.1:21900"
)

// peerRedis measures the name service on a Redis Cluster of this machine, beside one on a folder,
// if Redis is installed.
func peerRedis(ctx context.Context, env *Env, raw *CSV, r *Result) error {
	if _, err := exec.LookPath("redis-server"); err != nil {
		r.Note("Names in a Redis Cluster are not measured: redis-server is missing.")
		return nil
	}
	s := pick(env.Scale, namesScale{2_000, 20_000, 2_000, 1}, namesScale{100_000, 500_000, 100_000, 5}, namesScale{100_000, 2_000_000, 500_000, 20})
	c, err := redistest.Start(ctx, redistest.Options{Dir: filepath.Join(env.Dir, "redis"), At: netip.MustParseAddrPort(redisAt), Masters: redisMasters})
	if err != nil {
		return err
	}
	defer c.Stop()
	rig := newNamesRig(env, redisNamesPort, s.names)
	rig.redis = c
	defer rig.stop()
	if err := rig.start(ctx); err != nil {
		return err
	}
	if _, err := rig.fill(ctx, s, raw, &r.Tables[0], ", in a Redis Cluster"); err != nil {
		return err
	}
	env.Step("%d kills of all nodes of Redis while names are written", s.kills)
	if err := rig.kills(ctx, r, "what was acknowledged is in the Redis Cluster after a kill -9 of all its nodes in mid-update", s.kills, c.Kill, rig.restartRedis); err != nil {
		return err
	}
	r.Note("In a Redis Cluster: the same service and the same questions, of %d names, on %d masters of this machine without replicas, appendfsync always, asked over the loopback interface; CPU is that of the service and of the nodes. A write is acknowledged when its master's disk has it. The service verifies what it reads from Redis, each record once.", s.names, redisMasters)
	return nil
}

// restartRedis starts all nodes of Redis after a kill, and returns the number of names that are
// missing.
func (rig *namesRig) restartRedis(ctx context.Context, numbers map[int]uint64) (lost int, err error) {
	for _, n := range rig.redis.Nodes {
		if err := rig.redis.Restart(ctx, n); err != nil {
			return 0, err
		}
	}
	err = testbed.Poll(ctx, "all names from Redis", func() error {
		lost, err = rig.missing(ctx, numbers)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("after a kill of Redis: %w", err)
	}
	return lost, nil
}
