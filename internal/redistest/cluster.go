// Package redistest starts Redis Clusters on this machine, for tests and experiments.
package redistest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/sluice-net/sluice/internal/tasks"
)

// server is the program that a Node runs.
const server = "redis-server"

// slots is the number of hash slots into which a Redis Cluster divides its keys.
const slots = 16384

// stepTimeout bounds each step of a start, such as the wait until a server answers or until the nodes
// agree.
const stepTimeout = 30 * time.Second

// Options describes a Cluster.
type Options struct {
	// Dir is an existing or new folder for the nodes' files. If Dir is empty, Start creates a folder
	// and Stop removes it. If possible, that folder is in memory, so that the durations of a test do
	// not depend on a disk.
	Dir string
	// At is the address at which the first node listens. The other nodes listen on the ports that
	// follow. The nodes communicate with each other on ports that are higher by 10,000.
	At netip.AddrPort
	// Masters is the number of masters, Replicas the number of replicas of each.
	Masters, Replicas int
	// Settings are further lines of redis.conf for each node. They can override the default ones,
	// with which a node is durable: appendonly yes, appendfsync always.
	Settings []string
	// Password is the password of the user default; empty means none.
	Password string
	// TLS is the configuration of clients if the nodes use TLS, whose files Settings name; nil means
	// plain TCP.
	TLS *tls.Config
}

// Node is one server of a Cluster.
type Node struct {
	process
	// Addr is the address at which the node listens.
	Addr netip.AddrPort
	// Master is the index of the node's master; a node that was made a master has its own index.
	Master int
}

// Cluster is a running Redis Cluster.
type Cluster struct {
	Options
	// Nodes holds the masters, then the replicas.
	Nodes     []*Node
	temporary bool // Start has created Dir, and Stop removes it
}

// inMemory is a folder whose files are in memory.
const inMemory = "/dev/shm"

// errEnded means that a node ended before it answered.
var errEnded = errors.New("the server has ended")

// Start starts a Redis Cluster and returns when all of its nodes agree on it. It needs redis-server.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	c := &Cluster{Options: o}
	if c.Dir == "" {
		parent := inMemory
		if _, err := os.Stat(parent); err != nil {
			parent = ""
		}
		var err error
		if c.Dir, err = os.MkdirTemp(parent, "redis-cluster-"); err != nil {
			return nil, fmt.Errorf("redis cluster at %v: %w", o.At, err)
		}
		c.temporary = true
	}
	for i := range o.Masters * (1 + o.Replicas) {
		n := &Node{Addr: netip.AddrPortFrom(o.At.Addr(), o.At.Port()+uint16(i)), Master: i % o.Masters}
		if err := c.start(ctx, n); err != nil {
			c.Stop()
			return nil, err
		}
		c.Nodes = append(c.Nodes, n)
	}
	if err := c.join(ctx); err != nil {
		err = fmt.Errorf("redis cluster at %v: %w: %s", o.At, err, logged(c.log(c.Nodes[0])))
		c.Stop()
		return nil, err
	}
	return c, nil
}

// Restart starts a killed node again. The node reads the files that it has written before.
func (c *Cluster) Restart(ctx context.Context, n *Node) error { return c.start(ctx, n) }

// Kill kills all nodes at once, as a crash of the machine would.
func (c *Cluster) Kill() {
	for _, n := range c.Nodes {
		n.Kill()
	}
}

// Stop kills the cluster's nodes, because an orderly end takes seconds, and removes a temporary Dir.
func (c *Cluster) Stop() {
	c.Kill()
	if c.temporary {
		_ = os.RemoveAll(c.Dir) // a folder that is left does no harm, because it is temporary
	}
}

// Addrs returns the nodes' addresses.
func (c *Cluster) Addrs() (all []string) {
	for _, n := range c.Nodes {
		all = append(all, n.Addr.String())
	}
	return all
}

// Node returns a client of one node, which the caller closes.
func (c *Cluster) Node(n *Node) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: n.Addr.String(), Password: c.Password, TLSConfig: c.TLS, Protocol: 2, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// log returns the file with a node's output.
func (c *Cluster) log(n *Node) string {
	return filepath.Join(c.Dir, fmt.Sprintf("redis-%d.log", n.Addr.Port()))
}

// start starts a node and waits until it answers.
func (c *Cluster) start(ctx context.Context, n *Node) error {
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
	p, err := run(c.log(n), server, file)
	if err != nil {
		return err
	}
	n.process = p
	node := c.Node(n)
	defer node.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-p.done:
			cancel(errEnded)
		case <-ctx.Done():
		}
	}()
	err = tasks.Poll(ctx, stepTimeout, fmt.Sprintf("redis at %v", n.Addr), func() error {
		// The client would go on dialling in a goroutine for a while. So it is used only once the
		// node listens.
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", n.Addr.String())
		if err != nil {
			return err
		}
		_ = c.Close()
		return node.Ping(ctx).Err() // answered once the node has read its files
	})
	if err != nil {
		n.Kill()
		return fmt.Errorf("%w: %s", err, logged(c.log(n)))
	}
	return nil
}

// join makes the running nodes form a cluster, and waits until they agree that it works.
func (c *Cluster) join(ctx context.Context) error {
	var nodes []*redis.Client
	for _, n := range c.Nodes {
		node := c.Node(n)
		defer node.Close()
		nodes = append(nodes, node)
	}
	for i, node := range nodes {
		if i < c.Masters {
			if err := node.ClusterAddSlotsRange(ctx, i*slots/c.Masters, (i+1)*slots/c.Masters-1).Err(); err != nil {
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
	if err := awaitLine(ctx, nodes, "cluster", "info", "cluster_known_nodes:"+strconv.Itoa(len(nodes))); err != nil {
		return err
	}
	for i, node := range nodes[c.Masters:] {
		id, err := nodes[i%c.Masters].Do(ctx, "cluster", "myid").Text()
		if err == nil {
			err = tasks.Poll(ctx, stepTimeout, "a node that knows its master", func() error { return node.ClusterReplicate(ctx, id).Err() })
		}
		if err != nil {
			return err
		}
	}
	if err := awaitLine(ctx, nodes[c.Masters:], "info", "replication", "master_link_status:up"); err != nil {
		return err
	}
	if err := awaitLine(ctx, nodes[:c.Masters], "info", "replication", fmt.Sprintf("connected_slaves:%d", c.Replicas)); err != nil {
		return err
	}
	return awaitLine(ctx, nodes, "cluster", "info", "cluster_state:ok")
}

// awaitLine waits until each node's answer to a command contains a line.
func awaitLine(ctx context.Context, nodes []*redis.Client, command, what, line string) error {
	for _, node := range nodes {
		err := tasks.Poll(ctx, stepTimeout, line, func() error {
			text, err := node.Do(ctx, command, what).Text()
			if err == nil && !slices.Contains(strings.Fields(text), line) {
				err = fmt.Errorf("%s %s of %s has no such line", command, what, node.Options().Addr)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
