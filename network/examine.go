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

// Doctor examines the network, one time after the other.
type Doctor struct {
	cfg        *Config
	running    *atomic.Bool // the network does
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

// Doctor is who examines the network.
func (n *Network) Doctor() *Doctor { return &n.doctor }

// Diagnose begins to look for what is wrong with the network's links, switches' tables and
// hosts' places. The links' ends say that they carry IP packets of mtu bytes, in the range
// from linkprobe.MinMTU to linkprobe.MaxMTU. It returns at once; Diagnosis has what is found. While an examination
// runs the error is ErrBusy. At most linkprobe.MaxFrames are sent each way of a link.
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
	d.wanted <- struct{}{} // there is room: what was wanted before has been done
	return d.latest, nil
}

// Diagnosis is the report of the latest examination, which may still run: then nothing is
// in it yet. ok is false if there has been none.
func (d *Doctor) Diagnosis() (r diagnosis.Report, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.latest, d.latest.Number > 0
}

// run does what Diagnose begins, until ctx ends.
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
