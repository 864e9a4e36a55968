package agent

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/wholefile"
	"github.com/sluice-net/sluice/services/sos/pathrate"
)

// pacers holds an agent's pacers, by path. Pacers keep their knowledge while no session sends.
type pacers struct {
	a *Agent

	mu  sync.Mutex
	all map[netip.AddrPort]*pacer
}

func newPacers(a *Agent) *pacers { return &pacers{a: a, all: map[netip.AddrPort]*pacer{}} }

// of returns the pacer of a path, and creates it if necessary.
func (x *pacers) of(path netip.AddrPort) *pacer {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.all[path]
	if p == nil {
		if len(x.all) >= maxPeers {
			x.evict()
		}
		p = newPacer(x.a)
		x.all[path] = p
	}
	return p
}

// evict removes the path that has been idle longest; mu is held.
func (x *pacers) evict() {
	var oldest netip.AddrPort
	var at time.Time
	for path, p := range x.all {
		p.mu.Lock()
		idle, sent := !p.running, p.sent
		p.mu.Unlock()
		if idle && (!oldest.IsValid() || sent.Before(at)) {
			oldest, at = path, sent
		}
	}
	delete(x.all, oldest)
}

// pathOf returns the key of a connection's path: the peer's address, and the data port of
// the side that accepted the connection.
func (s *session) pathOf(nc net.Conn) netip.AddrPort {
	at := nc.RemoteAddr()
	if s.role == roleAcceptor {
		at = nc.LocalAddr()
	}
	port := uint16(0)
	if tcp, ok := at.(*net.TCPAddr); ok {
		port = uint16(tcp.Port)
	}
	return netip.AddrPortFrom(s.req.Peer.Addr, port)
}

const (
	// maxStoreBytes bounds the size of the file; maxPeers paths take less.
	maxStoreBytes = 1 << 20
	// maxStoredAge is the age up to which stored paths are used.
	maxStoredAge = 30 * 24 * time.Hour
	// saveEvery is the interval at which the file is written, if paths have changed.
	saveEvery = time.Minute
)

// storedPath is the form of a path in the file.
type storedPath struct {
	Peer    netip.Addr `json:"peer"`
	Port    uint16     `json:"port"`
	Rate    float64    `json:"bytes_per_second"`
	RTT     int64      `json:"rtt_microseconds"`
	Segment int        `json:"segment_bytes"`
	Seen    time.Time  `json:"seen"`

	Doubtful bool    `json:"doubtful,omitempty"`
	Loss     float64 `json:"loss,omitempty"` // share of the bytes that were retransmitted
}

// check returns an error if the entry is invalid or too old. The file may have been written by
// another program.
func (r *storedPath) check(now time.Time) error {
	switch {
	case !r.Peer.IsValid() || r.Port == 0:
		return errors.New("no peer")
	case math.IsNaN(r.Rate) || r.Rate <= 0 || r.Rate > maxStoredRate:
		return fmt.Errorf("rate of %v bytes a second", r.Rate)
	case r.RTT <= 0 || r.RTT > time.Minute.Microseconds():
		return fmt.Errorf("round trip of %d microseconds", r.RTT)
	case r.Segment < 500 || r.Segment > 65535:
		return fmt.Errorf("segments of %d bytes", r.Segment)
	case math.IsNaN(r.Loss) || r.Loss < 0 || r.Loss > 1:
		return fmt.Errorf("loss of %v", r.Loss)
	case now.Sub(r.Seen) > maxStoredAge:
		return errors.New("too old")
	}
	return nil
}

// maxStoredRate is the highest rate that is accepted from the file, in bytes a second.
const maxStoredRate = 1.25e12

// checkTrusted returns an error unless a file of the given mode and owner can be written by root and
// the agent's user own only. A stranger could otherwise make the agent send too fast or too slowly.
func checkTrusted(mode fs.FileMode, owner, own uint32) error {
	switch {
	case !mode.IsRegular():
		return errors.New("not a regular file")
	case owner != 0 && owner != own:
		return fmt.Errorf("belongs to user %d, want root or user %d, as which the agent runs: check its content, then use chown, or remove it", owner, own)
	case mode&0o022 != 0:
		return fmt.Errorf("mode %04o lets other users write it: check its content, then use chmod go-w, or remove it", mode.Perm())
	}
	return nil
}

// load restores the pacers from a file. It skips entries that are invalid or old, and returns an
// error for a file that is damaged, of another kind, or not trusted.
func (x *pacers) load(file string) error {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0) // the open of a named pipe does not wait
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok {
		if err := checkTrusted(info.Mode(), owner.Uid, uint32(os.Geteuid())); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	b, err := io.ReadAll(io.LimitReader(f, maxStoreBytes+1))
	if err != nil {
		return err
	}
	if len(b) > maxStoreBytes {
		return fmt.Errorf("%s: more than %d bytes", file, maxStoreBytes)
	}
	var all []storedPath
	if err := json.Unmarshal(b, &all); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if len(all) > maxPeers {
		return fmt.Errorf("%s: %d paths, want at most %d", file, len(all), maxPeers)
	}
	now := time.Now()
	for _, r := range all {
		if r.check(now) == nil {
			x.of(netip.AddrPortFrom(r.Peer, r.Port)).restore(r, now)
		}
	}
	return nil
}

// restore sets the rate of a path from the file. If the entry's time lies in the future, because a
// clock is or was wrong, the rate is doubtful.
func (p *pacer) restore(r storedPath, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	age := now.Sub(r.Seen)
	if age < 0 {
		age = 2 * doubtfulAfter
	}
	p.control = pathrate.New(r.Rate, 0, r.Doubtful || age > doubtfulAfter)
	p.shownAt = now.Add(-age) // not r.Seen: on the monotonic clock, a wall clock that is set back later makes no rate younger
	p.rtt, p.segment = time.Duration(r.RTT)*time.Microsecond, r.Segment
	p.loss, p.restored = lossShare{share: r.Loss, counted: lossSpan}, true
}

// stored returns the valid entries for the file, sorted by peer and port.
func (x *pacers) stored(now time.Time) []storedPath {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := make([]storedPath, 0, len(x.all))
	for path, p := range x.all {
		p.mu.Lock()
		if p.control != nil {
			rate, doubtful := p.control.Known()
			r := storedPath{
				Peer: path.Addr(), Port: path.Port(), Rate: rate, Doubtful: doubtful,
				RTT: p.rtt.Microseconds(), Segment: p.segment, Seen: p.shownAt, Loss: p.loss.share,
			}
			if r.check(now) == nil {
				all = append(all, r)
			}
		}
		p.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b storedPath) int {
		return cmp.Or(a.Peer.Compare(b.Peer), cmp.Compare(a.Port, b.Port))
	})
	return all
}

// writePaths replaces the file atomically.
func writePaths(file string, all []storedPath) error {
	b, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return wholefile.Replace(file, b, 0o600)
}

// savePaths writes the paths to the configured file periodically until the agent ends.
func (a *Agent) savePaths() {
	t := time.NewTicker(saveEvery)
	defer t.Stop()
	var last []storedPath
	for more := true; more; {
		select {
		case <-t.C:
		case <-a.ctx.Done():
			more = false
		}
		now := a.pacers.stored(time.Now())
		if slices.Equal(now, last) {
			continue
		}
		if err := writePaths(a.cfg.Memory, now); err != nil {
			a.warnLimit.Warn(a.log, "paths are not remembered", "file", a.cfg.Memory, "error", err)
			continue
		}
		last = now
	}
}
