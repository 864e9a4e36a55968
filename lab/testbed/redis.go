package testbed

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// redisSlots is how many parts the keys of a Redis Cluster have.
const redisSlots = 16384

// RedisOptions is how a Redis Cluster is.
type RedisOptions struct {
	// Dir is a folder of its own. Empty: one in memory, as far as there is a file system for that, which Stop removes: for tests of
	// what takes its time, which disks take, too.
	Dir string
	// At is where its first node listens; the others at the ports that follow. The ports from 10,000 above are for what they say
	// to each other.
	At netip.AddrPort
	// Masters and Replicas are how many there are, the replicas of each master.
	Masters, Replicas int
	// Settings are further ones of each node, as in redis.conf, after those of a durable node: appendonly yes, appendfsync
	// always.
	Settings []string
	// Password is that of the user default; empty for none. TLS is how it is asked over TLS, which Settings turn on; nil for
	// without.
	Password string
	TLS      *tls.Config
}

// RedisNode is a node of a Redis Cluster.
type RedisNode struct {
	*Daemon
	// Addr is where it listens.
	Addr netip.AddrPort
	// Master is its master's number; its own for a node that was made a master.
	Master int
}

// RedisCluster is one on this machine: its masters come first.
type RedisCluster struct {
	RedisOptions
	Nodes  []*RedisNode
	remove bool // the folder
}

// inMemory is where files are in memory.
const inMemory = "/dev/shm"

// StartRedis starts a Redis Cluster, and returns when all of its nodes agree on it. It needs redis-server.
func StartRedis(ctx context.Context, at Place, o RedisOptions) (*RedisCluster, error) {
	c := &RedisCluster{RedisOptions: o}
	if c.Dir == "" {
		at := inMemory
		if _, err := os.Stat(at); err != nil {
			at = ""
		}
		var err error
		if c.Dir, err = os.MkdirTemp(at, "redis-cluster-"); err != nil {
			return nil, fmt.Errorf("redis cluster at %v: %w", o.At, err)
		}
		c.remove = true
	}
	for i := range o.Masters * (1 + o.Replicas) {
		n := &RedisNode{Addr: netip.AddrPortFrom(o.At.Addr(), o.At.Port()+uint16(i)), Master: i % o.Masters}
		if err := c.start(ctx, at, n); err != nil {
			c.Stop()
			return nil, err
		}
		c.Nodes = append(c.Nodes, n)
	}
	if err := c.join(ctx); err != nil {
		c.Stop()
		return nil, fmt.Errorf("redis cluster at %v: %w: %s", o.At, err, Tail(c.log(c.Nodes[0]), lastWords))
	}
	return c, nil
}

// Restart starts a node that has been killed, on what it has on its disk.
func (c *RedisCluster) Restart(ctx context.Context, at Place, n *RedisNode) error {
	return c.start(ctx, at, n)
}

// Kill ends all nodes at once, the way a crash would.
func (c *RedisCluster) Kill() {
	for _, n := range c.Nodes {
		n.Kill()
	}
}

// Stop ends the cluster: by a kill, as an end of its own would take seconds.
func (c *RedisCluster) Stop() {
	c.Kill()
	if c.remove {
		_ = os.RemoveAll(c.Dir) // it is in memory, or where temporary files are
	}
}

// Addrs are where the nodes listen.
func (c *RedisCluster) Addrs() (all []string) {
	for _, n := range c.Nodes {
		all = append(all, n.Addr.String())
	}
	return all
}

// Node connects to a node, to be closed by who does.
func (c *RedisCluster) Node(n *RedisNode) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: n.Addr.String(), Password: c.Password, TLSConfig: c.TLS, Protocol: 2, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

func (c *RedisCluster) log(n *RedisNode) string {
	return filepath.Join(c.Dir, fmt.Sprintf("redis-%d.log", n.Addr.Port()))
}

// start starts a node.
func (c *RedisCluster) start(ctx context.Context, at Place, n *RedisNode) (err error) {
	host, port := n.Addr.Addr().String(), strconv.Itoa(int(n.Addr.Port()))
	dir := filepath.Join(c.Dir, port)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("redis at %v: %w", n.Addr, err)
	}
	settings := append([]string{
		"bind " + host, "bind-source-addr " + host, "cluster-announce-ip " + host, "port " + port, "dir " + dir, "daemonize no", "protected-mode no",
		"cluster-enabled yes", "cluster-node-timeout 1000", "cluster-replica-validity-factor 0", "cluster-require-full-coverage no",
		"appendonly yes", "appendfsync always", `save ""`, "repl-diskless-sync-delay 0",
	}, c.Settings...)
	if c.Password != "" {
		settings = append(settings, "requirepass "+c.Password, "masterauth "+c.Password)
	}
	if c.TLS != nil {
		settings = append(settings, "port 0", "tls-port "+port, "tls-cluster yes", "tls-replication yes")
	}
	file := filepath.Join(dir, "redis.conf")
	if err := os.WriteFile(file, []byte(strings.Join(settings, "\n")+"\n"), 0o600); err != nil {
		return fmt.Errorf("redis at %v: %w", n.Addr, err)
	}
	if n.Daemon, err = StartDaemon(ctx, at, c.log(n), "redis-server", file); err != nil {
		return err
	}
	if err = WaitListening(ctx, at, n.Addr.Port()); err == nil {
		node := c.Node(n)
		defer node.Close()
		err = Poll(ctx, fmt.Sprintf("redis at %v", n.Addr), func() error { return node.Ping(ctx).Err() }) // what is on disk is read
	}
	if err != nil {
		n.Kill()
		return fmt.Errorf("%w: %s", err, Tail(c.log(n), lastWords))
	}
	return nil
}

// join makes a cluster of the nodes.
func (c *RedisCluster) join(ctx context.Context) error {
	var nodes []*redis.Client
	for _, n := range c.Nodes {
		node := c.Node(n)
		defer node.Close()
		nodes = append(nodes, node)
	}
	for i, node := range nodes {
		if i < c.Masters {
			if err := node.ClusterAddSlotsRange(ctx, i*redisSlots/c.Masters, (i+1)*redisSlots/c.Masters-1).Err(); err != nil {
				return err
			}
		}
		if err := node.Do(ctx, "cluster", "set-config-epoch", i+1).Err(); err != nil {
			return err
		}
	}
	for _, n := range c.Nodes[1:] {
		if err := nodes[0].ClusterMeet(ctx, n.Addr.Addr().String(), strconv.Itoa(int(n.Addr.Port()))).Err(); err != nil {
			return err
		}
	}
	if err := c.agree(ctx, nodes, "cluster", "info", "cluster_known_nodes:"+strconv.Itoa(len(nodes))); err != nil {
		return err
	}
	for i, node := range nodes[c.Masters:] {
		id, err := nodes[i%c.Masters].Do(ctx, "cluster", "myid").Text()
		if err == nil {
			err = Poll(ctx, "a node that knows its master", func() error { return node.ClusterReplicate(ctx, id).Err() })
		}
		if err != nil {
			return err
		}
	}
	if err := c.agree(ctx, nodes[c.Masters:], "info", "replication", "master_link_status:up"); err != nil {
		return err
	}
	if err := c.agree(ctx, nodes[:c.Masters], "info", "replication", fmt.Sprintf("connected_slaves:%d", c.Replicas)); err != nil {
		return err
	}
	return c.agree(ctx, nodes, "cluster", "info", "cluster_state:ok")
}

// agree waits until all nodes have a line in what they say.
func (*RedisCluster) agree(ctx context.Context, nodes []*redis.Client, command, what, line string) error {
	for _, node := range nodes {
		err := Poll(ctx, line, func() error {
			text, err := node.Do(ctx, command, what).Text()
			if err == nil && !slices.Contains(strings.Fields(text), line) {
				err = fmt.Errorf("%s says another", node.Options().Addr)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
