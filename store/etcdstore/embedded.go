package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/sluice-net/sluice/internal/folderlock"
	"github.com/sluice-net/sluice/store"
)

// memberName is etcd's name for the only member of an embedded "cluster". It
// and the peer address (which nothing listens on) are part of the data folder
// and must not change.
const (
	memberName   = "sluice"
	peerAddress  = "http://127.0.0.1:2380"
	clusterToken = "etcd-cluster"
)

const (
	// segment is how large a file of etcd's log is, in bytes. There are two of them at
	// least, one in advance; etcd's own 64 MB are for larger stores than ours.
	segment = 4 << 20
	// roomInterval is how often the file system is looked at.
	roomInterval = 250 * time.Millisecond
	// renewTimeout bounds the start of an etcd in the place of another.
	renewTimeout = 30 * time.Second
)

// etcd has the size of its log's files in a variable.
var setSegment = sync.OnceFunc(func() { wal.SegmentSizeBytes = segment })

// EmbeddedOptions says how the embedded etcd works.
type EmbeddedOptions struct {
	// Dir is the data folder. It is made, readable by its owner only.
	Dir string
	// MinFree is how many bytes of the folder's file system have to be free for writes to
	// be accepted; DefaultMinFree if zero, MinMinFree at least.
	MinFree uint64
	// Snapshots says which snapshots Run keeps.
	Snapshots SnapshotOptions
	// Log receives etcd's errors (as warnings) and warnings (as debug lines).
	Log *slog.Logger
}

// embedded is what a Store has if its etcd runs in this process.
type embedded struct {
	opts   EmbeddedOptions
	server *embed.Etcd
	room   *room
	broken *broken
}

// OpenEmbedded starts an etcd inside this process and waits until it answers
// or ctx ends. What it stores is accepted only while the file system has room for it; see
// store.NoRoomError. Run looks after the store then.
func OpenEmbedded(ctx context.Context, o EmbeddedOptions) (*Store, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.MinFree == 0 {
		o.MinFree = DefaultMinFree
	}
	o.MinFree = max(o.MinFree, LeastMinFree)
	unlock, err := lock(o.Dir)
	if err != nil {
		return nil, err
	}
	e := &embedded{opts: o, broken: newBroken(o.Dir)}
	if err := e.start(ctx); err != nil {
		unlock()
		return nil, err
	}
	s := newStore(v3client.New(e.server.Server), "", func() error {
		e.stop()
		unlock()
		return nil
	})
	s.embedded = e
	context.AfterFunc(e.broken.ctx, s.end)
	return s, nil
}

// start looks through what there is of a store and starts etcd on it, with the room that
// it needs.
func (e *embedded) start(ctx context.Context) error {
	report, err := check(ctx, e.opts.Dir)
	if err == nil {
		err = report.Err()
	}
	if err != nil {
		return err
	}
	if err := keepLog(e.opts.Dir); err != nil {
		return err
	}
	e.room = &room{dir: e.opts.Dir, need: e.opts.MinFree}
	if err := e.room.prepare(report); err != nil {
		return err
	}
	if e.server, err = e.boot(ctx); err != nil {
		e.room.close()
		return err
	}
	e.room.keepBack()
	return e.room.open(e.server.Server.Backend().Size, e.commit)
}

// commit has etcd write what is in its database so far. It hangs if etcd breaks over it, so
// nobody waits for it longer than that.
func (e *embedded) commit() {
	done := make(chan struct{})
	go func() { // ends with the commit, or with the process
		e.server.Server.Backend().ForceCommit()
		close(done)
	}()
	select {
	case <-done:
	case <-e.broken.ctx.Done():
	}
}

// boot starts etcd and waits until it answers. It may break meanwhile, and hang then.
func (e *embedded) boot(ctx context.Context) (*embed.Etcd, error) {
	setSegment()
	type result struct {
		server *embed.Etcd
		err    error
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("etcdstore: etcd on %s is not started: %w", e.opts.Dir, ctx.Err())
	}
	started := make(chan result, 1)
	go func() { // ends with StartEtcd; if that breaks, with the process
		defer func() {
			if p := recover(); p != nil {
				started <- result{err: fmt.Errorf("%v", p)}
			}
		}()
		server, err := embed.StartEtcd(e.config())
		started <- result{server, err}
	}()
	var server *embed.Etcd
	select {
	case r := <-started:
		if r.err != nil {
			return nil, fmt.Errorf("etcdstore: start etcd on %s: %w", e.opts.Dir, r.err)
		}
		server = r.server
	case <-e.broken.ctx.Done():
		return nil, context.Cause(e.broken.ctx)
	case <-ctx.Done():
		go func() { // ends with StartEtcd as well
			if r := <-started; r.server != nil {
				halt(r.server)
			}
		}()
		return nil, fmt.Errorf("etcdstore: etcd on %s did not start: %w", e.opts.Dir, ctx.Err())
	}
	var err error
	select {
	case <-server.Server.ReadyNotify():
		return server, nil
	case <-e.broken.ctx.Done():
		return nil, context.Cause(e.broken.ctx)
	case err = <-server.Err():
	case <-ctx.Done():
		err = ctx.Err()
	}
	halt(server)
	return nil, fmt.Errorf("etcdstore: etcd on %s did not become ready: %w", e.opts.Dir, err)
}

// halt stops an etcd that nobody uses.
func halt(server *embed.Etcd) {
	server.Server.HardStop()
	server.Close()
}

// stop stops etcd. One that has broken cannot be stopped: it ends with the process.
func (e *embedded) stop() {
	if e.broken.ctx.Err() != nil {
		return
	}
	saveLog(e.opts.Dir)
	e.server.Close()
	e.room.close()
}

func (e *embedded) config() *embed.Config {
	c := embed.NewConfig()
	c.Name = memberName
	c.Dir = filepath.Join(e.opts.Dir, etcdDir)
	// No listeners: nothing outside this process can reach it.
	c.ListenPeerUrls, c.ListenClientUrls = nil, nil
	peer, _ := url.Parse(peerAddress) // a constant that parses
	c.AdvertisePeerUrls, c.AdvertiseClientUrls = []url.URL{*peer}, []url.URL{*peer}
	c.InitialClusterToken = clusterToken
	c.InitialCluster = memberName + "=" + peerAddress
	// A single member elects itself, up to one election timeout after its start;
	// switches wait for that. Nobody else is there who could be too slow for it.
	c.TickMs, c.ElectionMs = 10, 50
	c.AutoCompactionMode, c.AutoCompactionRetention = embed.CompactorModePeriodic, "1h"
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zapLogger(e.opts.Log, e.broken, e.room.setStuck))
	return c
}

// lock makes sure that no other process works on the folder: etcd itself would
// wait for it without a word.
func lock(dir string) (unlock func(), err error) {
	f, err := folderlock.Take(dir, 0o700)
	if errors.Is(err, folderlock.ErrBusy) {
		err = errors.New("another controller works on it: stop that one, or give this one a data folder of its own")
	}
	if err != nil {
		return nil, fmt.Errorf("etcdstore: lock %s: %w", dir, err)
	}
	return func() { _ = f.Close() }, nil
}

// Room says why the store accepts no writes now; nil if it does.
func (s *Store) Room() *store.NoRoomError {
	if s.embedded == nil {
		return nil
	}
	s.use.RLock()
	defer s.use.RUnlock()
	return s.embedded.room.now()
}

// renew starts another etcd in the place of one that does not see that there is room
// again. Watches end; operations wait.
func (s *Store) renew(ctx context.Context) error {
	if err := s.over(); err != nil {
		return err
	}
	s.use.RLock()
	spent := s.embedded.room.spent()
	s.use.RUnlock()
	if !spent {
		return nil
	}
	s.mu.Lock()
	s.endEra()
	s.mu.Unlock()
	s.use.Lock()
	defer s.use.Unlock()
	s.watches.Wait()
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	_ = s.client.Close() // it says that its context has ended
	s.embedded.stop()
	if err := s.embedded.start(ctx); err != nil {
		s.embedded.broken.cause(err)
		return err
	}
	s.client = v3client.New(s.embedded.server.Server)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.era, s.endEra = context.WithCancel(s.life)
	return nil
}

// Run looks after an embedded store until ctx ends, or until its etcd breaks and with it
// the store: it keeps snapshots, and starts etcd anew if that is needed to write again. told hears when writes begin to be refused, with the reason, and nil when
// they are accepted again. It must not wait.
func (s *Store) Run(ctx context.Context, told func(*store.NoRoomError)) error {
	if s.embedded == nil {
		<-ctx.Done()
		return nil
	}
	if o := s.embedded.opts.Snapshots; o.Keep > 0 {
		ctx, stop := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() { s.keepSnapshots(ctx, o) })
		defer func() {
			stop()
			if s.embedded.broken.ctx.Err() == nil { // or it may hang with etcd
				wg.Wait()
			}
		}()
	}
	t := time.NewTicker(roomInterval)
	defer t.Stop()
	refused := false
	for {
		if why := s.Room(); (why != nil) != refused {
			refused = why != nil
			told(why)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.embedded.broken.ctx.Done():
			return context.Cause(s.embedded.broken.ctx)
		case <-t.C:
			if err := s.renew(ctx); err != nil {
				return err
			}
			s.use.RLock()
			s.embedded.room.keepBack()
			s.use.RUnlock()
		}
	}
}

// operationTimeout bounds each operation of a caller that set no deadline.
const operationTimeout = 10 * time.Second
