package agent

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/wholefile"
	"github.com/sluice-net/sluice/sos/pathrate"
)

const (
	// maxMemory bounds the file that is read; rememberPeers paths take less.
	maxMemory = 1 << 20
	// forgetAfter is how old what is remembered may be.
	forgetAfter = 30 * 24 * time.Hour
	// saveEvery is how often the file is written, if something has changed.
	saveEvery = time.Minute
)

// remembered is a path as the memory's file has it.
type remembered struct {
	Peer    netip.Addr `json:"peer"`
	Port    uint16     `json:"port"`
	Rate    float64    `json:"bytes_per_second"`
	RTT     int64      `json:"rtt_microseconds"`
	Segment int        `json:"segment_bytes"`
	Seen    time.Time  `json:"seen"`
}

// check says what is wrong with an entry that somebody else may have written.
func (r *remembered) check(now time.Time) error {
	switch {
	case !r.Peer.IsValid() || r.Port == 0:
		return errors.New("no peer")
	case math.IsNaN(r.Rate) || r.Rate <= 0 || r.Rate > mostRemembered:
		return fmt.Errorf("rate of %v bytes a second", r.Rate)
	case r.RTT <= 0 || r.RTT > time.Minute.Microseconds():
		return fmt.Errorf("round trip of %d microseconds", r.RTT)
	case r.Segment < 500 || r.Segment > 65535:
		return fmt.Errorf("segments of %d bytes", r.Segment)
	case now.Sub(r.Seen) > forgetAfter:
		return errors.New("too old")
	}
	return nil
}

// mostRemembered is the most that is believed of a path, in bytes a second.
const mostRemembered = 1.25e12

// load fills the pacers with what a file remembers. Paths with something wrong or old are
// left out; a file that is not ours, or damaged, is refused whole.
func (x *pacers) load(file string) error {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxMemory+1))
	if err != nil {
		return err
	}
	if len(b) > maxMemory {
		return fmt.Errorf("%s: more than %d bytes", file, maxMemory)
	}
	var all []remembered
	if err := json.Unmarshal(b, &all); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if len(all) > rememberPeers {
		return fmt.Errorf("%s: %d paths, want at most %d", file, len(all), rememberPeers)
	}
	now := time.Now()
	for _, r := range all {
		if r.check(now) == nil {
			x.of(netip.AddrPortFrom(r.Peer, r.Port)).recall(r, now)
		}
	}
	return nil
}

// recall takes what is remembered of a path. A clock that was ahead, or is behind, makes it doubtful.
func (p *pacer) recall(r remembered, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	age := now.Sub(r.Seen)
	p.control = pathrate.New(r.Rate, 0, age < 0 || age > doubtfulAfter)
	p.known, p.rtt, p.segment = r.Seen, time.Duration(r.RTT)*time.Microsecond, r.Segment
	if age < 0 {
		p.known = now.Add(-2 * doubtfulAfter)
	}
}

// known lists what is worth remembering.
func (x *pacers) known(now time.Time) []remembered {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := make([]remembered, 0, len(x.all))
	for path, p := range x.all {
		p.mu.Lock()
		if p.control != nil {
			r := remembered{Peer: path.Addr(), Port: path.Port(), Rate: p.control.Rate(), RTT: p.rtt.Microseconds(), Segment: p.segment, Seen: p.known}
			if r.check(now) == nil {
				all = append(all, r)
			}
		}
		p.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b remembered) int {
		return cmp.Or(a.Peer.Compare(b.Peer), cmp.Compare(a.Port, b.Port))
	})
	return all
}

// save writes what is known of the paths, whole or not at all.
func save(file string, all []remembered) error {
	b, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return wholefile.Replace(file, b, 0o600)
}

// remember keeps the paths in the configured file until the agent ends.
func (a *Agent) remember() {
	t := time.NewTicker(saveEvery)
	defer t.Stop()
	var last []remembered
	for more := true; more; {
		select {
		case <-t.C:
		case <-a.ctx.Done():
			more = false
		}
		now := a.pacers.known(time.Now())
		if slices.Equal(now, last) {
			continue
		}
		if err := save(a.cfg.Memory, now); err != nil {
			a.strange.Warn(a.log, "paths are not remembered", "file", a.cfg.Memory, "error", err)
			continue
		}
		last = now
	}
}
