package network

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/diagnosis"
)

// diagnoses are the examinations of the network: one at a time, and the latest's report.
type diagnoses struct {
	mu     sync.Mutex
	latest diagnosis.Report
	wanted chan struct{}
}

// Diagnose begins to look for what is wrong with the network's links, switches' tables and
// hosts' places. The links' ends say that
// they carry IP packets of mtu bytes, in the range from linkprobe.MinMTU to
// linkprobe.MaxMTU. It returns at once; Diagnosis has what is found. While an examination
// runs the error is ErrBusy. At most linkprobe.MaxFrames are sent each way of a link.
func (n *Network) Diagnose(mtu int) (diagnosis.Report, error) {
	d := &n.diagnoses
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.latest.Number > 0 && d.latest.Ended.IsZero() {
		return d.latest, ErrBusy
	}
	if !n.running.Load() {
		return diagnosis.Report{}, ErrClosed
	}
	d.latest = diagnosis.Report{Number: d.latest.Number + 1, MTU: mtu, Began: time.Now()}
	d.wanted <- struct{}{} // there is room: what was wanted before has been done
	return d.latest, nil
}

// Diagnosis is the report of the latest examination, which may still run: then nothing is
// in it yet. ok is false if there has been none.
func (n *Network) Diagnosis() (r diagnosis.Report, ok bool) {
	n.diagnoses.mu.Lock()
	defer n.diagnoses.mu.Unlock()
	return n.diagnoses.latest, n.diagnoses.latest.Number > 0
}

// runDiagnoses does what Diagnose begins, until ctx ends.
func (n *Network) runDiagnoses(ctx context.Context) {
	d := &n.diagnoses
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.wanted:
		}
		d.mu.Lock()
		r := d.latest
		d.mu.Unlock()
		n.examine(ctx, &r)
		n.examineTables(ctx, &r)
		n.examineSwitches(ctx, &r)
		n.examineHosts(ctx, &r)
		slices.SortStableFunc(r.Findings, func(a, b diagnosis.Finding) int { return a.From.Compare(b.From) })
		r.Ended = time.Now()
		d.mu.Lock()
		d.latest = r
		d.mu.Unlock()
	}
}
