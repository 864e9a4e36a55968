package network

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/network/diagnosis"
	"github.com/sluice-net/sluice/network/hosts"
)

// Doctor examines the network. One examination runs at a time.
type Doctor struct {
	cfg        *Config
	running    *atomic.Bool // whether the network runs
	switches   *registry
	hosts      *hosts.Table
	snapshots  *snapshots
	core       *Owner
	hostProber *hostProber
	resolver   *resolver
	queues     *probeQueues

	probes    probeReceiver
	lostLinks lostLinks
	needed    []func() []diagnosis.Needed

	mu     sync.Mutex
	latest diagnosis.Report
	wanted chan struct{}
}

// Doctor returns the network's examiner.
func (n *Network) Doctor() *Doctor { return &n.doctor }

// Diagnose starts to look for faults of the network's links, the switches' tables and the hosts'
// places. mtu is the length in bytes of the IP packets that links should carry, from
// linkprobe.MinMTU to linkprobe.MaxMTU. At most linkprobe.MaxFrames frames are sent in each
// direction of a link. Diagnose returns at once; Diagnosis returns the result. While an examination
// runs, Diagnose returns ErrBusy.
func (d *Doctor) Diagnose(mtu int) (diagnosis.Report, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.latest.Number > 0 && d.latest.Ended.IsZero() {
		return d.latest, ErrBusy
	}
	if !d.running.Load() {
		return diagnosis.Report{}, ErrClosed
	}
	d.latest = diagnosis.Report{Number: d.latest.Number + 1, MTU: mtu, Began: time.Now()}
	d.wanted <- struct{}{} // this does not block: the previous request has been taken
	return d.latest, nil
}

// Diagnosis returns the report of the latest examination. It has no findings while the examination
// runs. ok is false if there has been none.
func (d *Doctor) Diagnosis() (r diagnosis.Report, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.latest, d.latest.Number > 0
}

// run executes the examinations that Diagnose starts, until ctx ends.
func (d *Doctor) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.wanted:
		}
		d.mu.Lock()
		r := d.latest
		d.mu.Unlock()
		d.examine(ctx, &r)
		d.examineTables(ctx, &r)
		d.examineSwitches(ctx, &r)
		d.examineHosts(ctx, &r)
		slices.SortStableFunc(r.Findings, func(a, b diagnosis.Finding) int { return a.From.Compare(b.From) })
		r.Ended = time.Now()
		d.mu.Lock()
		d.latest = r
		d.mu.Unlock()
	}
}
